"""Empty the database after a test that commits, without Django's `flush`.

`flush` truncates every table, and then creates the content types and the permissions of all apps
again: most of the time of a short test. Here only the tables that something was written to are
emptied, in one statement, and the rows that `migrate` leaves are put back only when a test has
changed them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TransactionTestCase

#: What `migrate` leaves in the database, in the order in which rows refer to each other.
KEPT: tuple[type[models.Model], ...] = (ContentType, Permission)

#: By alias: the rows of these tables after `migrate`.
_migrated: dict[str, list[list[dict[str, Any]]]] = {}

_flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]  # Django's own


def remember(alias: str) -> None:
    """Take the rows that `migrate` has left as the ones to restore."""
    _migrated[alias] = _rows(alias)


def install() -> None:
    TransactionTestCase._fixture_teardown = _fixture_teardown  # type: ignore[attr-defined]


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
        _truncate(connection)
    else:
        _delete(connection)
    if _rows(alias) != _migrated[alias]:
        _restore(alias)


@cache
def _is_emptied() -> Callable[[str], bool]:
    """Return a test of whether a table is one that `flush` empties, or the package's own."""
    flushed = set(connections["default"].introspection.django_table_names(include_views=False))
    flushed -= {model._meta.db_table for model in KEPT}
    return lambda name: name in flushed or name.startswith("ojs_")


def _truncate(connection: BaseDatabaseWrapper) -> None:
    quote = connection.ops.quote_name
    with connection.cursor() as cursor:
        # A table whose file has a page was written to, whether or not the rows are still there.
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = current_schema()::regnamespace AND pg_relation_size(oid) > 0"
        )
        written = [quote(name) for (name,) in cursor.fetchall() if _is_emptied()(name)]
        if written:
            # CASCADE: PostgreSQL wants the tables that refer to these named as well.
            cursor.execute(f"TRUNCATE {', '.join(written)} CASCADE")


def _delete(connection: BaseDatabaseWrapper) -> None:
    quote = connection.ops.quote_name
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in cursor.fetchall() if _is_emptied()(name)]
        question = " UNION ALL ".join(
            f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {quote(name)})" for name in names
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


def _rows(alias: str) -> list[list[dict[str, Any]]]:
    return [list(model._base_manager.using(alias).order_by("pk").values()) for model in KEPT]


def _restore(alias: str) -> None:
    with transaction.atomic(using=alias):
        for model in reversed(KEPT):
            model._base_manager.using(alias).all().delete()
        for model, rows in zip(KEPT, _migrated[alias], strict=True):
            model._base_manager.using(alias).bulk_create(model(**row) for row in rows)
    ContentType.objects.clear_cache()
