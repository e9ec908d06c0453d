"""Empty the database after a test that commits, without Django's `flush`, and keep its connection.

`flush` truncates every table, and then creates the content types and the permissions of all apps
again: most of the time of a short test. Here only the tables that something was written to are
emptied, in one statement, and the rows that `migrate` leaves are put back only when a test has
changed them.

Django closes the connections after such a test. A new one takes as long as some tests: PostgreSQL
starts a process, which reads its catalog and compiles the triggers again, and SQLite reads the
schema. So a connection is kept when it is as good as new: see `_is_as_new`.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import DatabaseError, OperationalError, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import SimpleTestCase, TransactionTestCase
from django.test.testcases import _DatabaseFailure

#: What `migrate` leaves in the database, in the order in which rows refer to each other.
KEPT: tuple[type[models.Model], ...] = (ContentType, Permission)

#: By alias: the rows of these tables after `migrate`, to compare with, and to restore.
_migrated: dict[str, tuple[list[list[tuple[Any, ...]]], list[list[dict[str, Any]]]]] = {}
#: What a session of PostgreSQL keeps beyond a transaction.
_RESET = "RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()"

#: What libpq calls a session that is executing a statement.
_ACTIVE = 1
#: Attempts to cancel a statement, a second apart.
_CANCELS = 10
_DEADLOCK = "40P01"
#: Few tables that are as small, and were never analyzed, are emptied by DELETE: TRUNCATE makes a
#: new file for each index, of which the jobs have two dozen. For a table that it does not know,
#: PostgreSQL plans for ten pages at least: the dead rows change no plan.
_SMALL = 10 * 8192
_FEW = 16
_OWN_CLOCK = "SELECT 1 FROM pragma_function_list WHERE name = 'strftime' AND NOT builtin"

#: By vendor: the tables, and the FROM of a SELECT without a table.
_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "mysql": "SHOW TABLES",
}
_NOTHING = {"sqlite": "", "mysql": "FROM DUAL"}

_flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]  # Django's own


def remember(alias: str) -> None:
    """Take the rows that `migrate` has left as the ones to restore."""
    _migrated[alias] = (
        _rows(alias),
        [list(model._base_manager.using(alias).order_by("pk").values()) for model in KEPT],
    )


def install() -> None:
    TransactionTestCase._fixture_teardown = _fixture_teardown  # type: ignore[attr-defined]
    TransactionTestCase._should_reload_connections = (  # type: ignore[attr-defined]
        _should_reload_connections
    )
    SimpleTestCase._remove_databases_failures = classmethod(  # type: ignore[attr-defined]
        _permit_queries
    )


def _permit_queries(cls: Any) -> None:
    """Take off the connections what rejected the queries of a class of tests.

    Django puts the methods of the connection in its place, where they look like those of a program
    that wants to see all statements: `storage.dialects.direct_statements` then sends none.
    """
    for connection in (connections[alias] for alias in connections if alias not in cls.databases):
        # Found by what they are: each version of Django has their names somewhere else.
        for name, value in [*vars(connection).items()]:
            if isinstance(value, _DatabaseFailure):
                delattr(connection, name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Close the connections that a time limit has interrupted, before fixtures use them.

    The connection takes no other statement before it has the result of that one: without this every
    test that follows in the process would fail.
    """
    for connection in connections.all(initialized_only=True):
        link: Any = connection.connection
        if connection.vendor != "postgresql" or link is None:
            continue
        if link.info.transaction_status == _ACTIVE:
            # A server that a test has stopped hears nothing.
            with suppress(DatabaseError), connection.wrap_database_errors:
                _cancel(link)
            connection.close()


def _cancel(link: Any) -> None:
    """Cancel the statement of a session, and wait until it has ended.

    Again if need be: a session that has not begun to execute the statement ignores it. One that is
    not cancelled goes on when the connection is closed, with its transaction.
    """
    for _ in range(_CANCELS):
        link.cancel_safe(timeout=5)
        ready, _, _ = select.select([link], [], [], 1.0)
        if ready:
            return


def _should_reload_connections(self: Any) -> bool:
    """Close the connections that are not as new ones, here and not in Django."""
    for connection in connections.all(initialized_only=True):
        if self.available_apps is not None or not _is_as_new(connection):
            connection.close()
    return False


def _is_as_new(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a test has left no transaction, and reset what else a session may keep."""
    if connection.connection is None or connection.in_atomic_block:
        return False
    if connection.errors_occurred or not connection.get_autocommit():
        return False
    if connection.vendor == "mysql":
        return False  # Its variables cannot be reset.
    if connection.vendor == "sqlite":
        # The clock of `django_ojs.testing` cannot give SQLite its function back.
        link = connection.connection
        return not (link.in_transaction or link.execute(_OWN_CLOCK).fetchone())
    if connection.connection.info.transaction_status:  # 0 is IDLE.
        return False
    with connection.connection.cursor() as cursor:
        cursor.execute(_RESET)
    connection.init_connection_state()
    connection.run_on_commit = []
    return True


def _fixture_teardown(self: Any) -> None:
    if self.available_apps is not None:
        _flush(self)  # It is about other tables.
        return
    for alias in self._databases_names(include_mirrors=False):
        empty(alias)


def empty(alias: str) -> None:
    """Bring the tables of a database to what they were after `migrate`; sequences go on."""
    connection = connections[alias]
    if connection.vendor == "postgresql":
        _empty_tables(connection)
    elif connection.vendor == "mysql":
        with connection.constraint_checks_disabled():
            _delete(connection)
    else:
        _delete(connection)
    if _rows(alias) != _migrated[alias][0]:
        _restore(alias)


@cache
def _is_emptied() -> Callable[[str], bool]:
    """Return a test of whether a table is one that `flush` empties, or the package's own."""
    flushed = set(connections["default"].introspection.django_table_names(include_views=False))
    flushed -= {model._meta.db_table for model in KEPT}
    # The rows of ojs_lock are locks.
    return lambda name: name in flushed or (name.startswith("ojs_") and name != "ojs_lock")


def _empty_tables(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        # A table whose file has a page was written to, whether or not the rows are still there.
        cursor.execute(
            "SELECT relname, pg_relation_size(oid) <= %s AND reltuples < 0 FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
            " AND pg_relation_size(oid) > 0",
            [_SMALL],
        )
        quote = connection.ops.quote_name
        found = [(quote(name), small) for name, small in cursor.fetchall() if _is_emptied()(name)]
        if not found:
            return
        names = ", ".join(name for name, _ in found)
        few = len(found) <= _FEW and all(small for _, small in found)
        if few and connection.connection.info.parameter_status("is_superuser") == "on":
            deletes = "; ".join(f"DELETE FROM {name}" for name, _ in found)
            # One message, without triggers. The lock waits, as TRUNCATE does, for a statement that
            # the server still runs for a worker that the test has killed.
            statement = (
                f"BEGIN; SET LOCAL session_replication_role = replica; LOCK TABLE {names}"
                f" IN ACCESS EXCLUSIVE MODE; {deletes}; COMMIT"
            )
        else:
            # CASCADE: PostgreSQL wants the tables that refer to these named as well.
            statement = f"TRUNCATE {names} CASCADE"
        # Up to five times: that statement may lock the tables in another order.
        for left in range(4, -1, -1):
            try:
                cursor.execute(statement)
            except OperationalError as error:
                connection.rollback()
                if not left or getattr(error.__cause__, "sqlstate", None) != _DEADLOCK:
                    raise
            else:
                return


def _delete(connection: BaseDatabaseWrapper) -> None:
    quote = connection.ops.quote_name
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute(_TABLES[connection.vendor])
        names = [name for (name,) in cursor.fetchall() if _is_emptied()(name)]
        question = " UNION ALL ".join(
            f"SELECT '{name}' {_NOTHING[connection.vendor]}"
            f" WHERE EXISTS (SELECT 1 FROM {quote(name)})"
            for name in names
        )
        # Again while there are rows, because triggers write when rows are deleted.
        for _ in names:
            cursor.execute(question)
            written = cursor.fetchall()
            if not written:
                return
            for (name,) in written:
                cursor.execute(f"DELETE FROM {quote(name)}")
    raise AssertionError("the tables fill again while they are emptied")


def _rows(alias: str) -> list[list[tuple[Any, ...]]]:
    # Not by their models: that takes ten times as long, after each test.
    found = []
    with connections[alias].cursor() as cursor:
        for model in KEPT:
            cursor.execute(f"SELECT * FROM {model._meta.db_table} ORDER BY id")
            found.append(cursor.fetchall())
    return found


def _restore(alias: str) -> None:
    with transaction.atomic(using=alias):
        for model in reversed(KEPT):
            model._base_manager.using(alias).all().delete()
        for model, rows in zip(KEPT, _migrated[alias][1], strict=True):
            model._base_manager.using(alias).bulk_create(model(**row) for row in rows)
    ContentType.objects.clear_cache()
