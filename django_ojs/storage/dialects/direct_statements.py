"""Send statements by the driver's connection itself, without the cursors of Django and psycopg.

The two cursors take 70 µs of CPU time for a statement that needs 45 without them, and every enqueue
is one statement. What is sent is the same: one simple query with the values as literals, which all
poolers understand. Where something may want to see the statement pass (a wrapper, the log of
queries, an instrumented cursor), or the connection is not as Django and psycopg make it, the
statement takes the cursor.
"""

import inspect
from collections.abc import Generator, Iterable
from operator import is_
from types import FunctionType
from typing import Any, Final

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql import base as django_postgresql
from django.db.backends.utils import CursorWrapper
from psycopg import errors, generators, pq

from django_ojs.storage.dialects import execute_wrappers

#: The methods that `cursor()` calls. A backend that overrides one of them may do there what each
#: statement needs, such as setting the schema of a tenant.
_METHODS: Final = ("cursor", "_cursor", "_prepare_cursor", "make_cursor", "create_cursor")
#: The modules of these methods and of `execute`. Functions of other modules belong to a backend or
#: to instrumentation.
_MODULES: Final = frozenset(
    (
        "django.db.backends.base.base",
        "django.db.backends.postgresql.base",
        "django.db.backends.postgresql.psycopg_any",
        "django.db.backends.utils",
        "django.utils.asyncio",
        "psycopg.cursor",
    )
)
#: Whether psycopg has everything that is used here. It does not document all of that.
_HAS_ALL: Final = all(
    hasattr(owner, name)
    for owner, name in (
        (psycopg.Connection, "wait"),
        (errors, "error_from_result"),
        (generators, "execute"),
        (pq, "PipelineStatus"),
        (pq.Escaping, "escape_literal"),
    )
)

#: The only class of cursors that is used here. Other classes belong to instrumentation, or send the
#: values apart from the statement.
_Cursor: Final[Any] = django_postgresql.Cursor

_IDLE, _IN_TRANSACTION = pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS

#: Begins a transaction in which each statement sees what was committed before it.
BEGIN: Final = b"BEGIN ISOLATION LEVEL READ COMMITTED; "

Value = str | int


def integer(connection: BaseDatabaseWrapper, statement: str, values: list[Value]) -> int | None:
    """Run a statement that returns one integer or NULL, and return this value.

    The statement has a `%s` for each value, and no other per cent sign.
    """
    link = usable(connection, begins=True)
    if link is None:
        return _by_cursor(connection, statement, values)  # type: ignore[no-any-return]  # a row of Any
    with connection.wrap_database_errors:
        text = _send(link, statement, values)
    return None if text is None else int(text)


def text(connection: BaseDatabaseWrapper, statement: str, values: list[Value]) -> str | None:
    """Run a statement that returns one text or NULL, and return this value; see `integer`."""
    link = usable(connection, begins=True)
    if link is None:
        return _by_cursor(connection, statement, values)  # type: ignore[no-any-return]  # a row of Any
    with connection.wrap_database_errors:
        found = _send(link, statement, values)
    return None if found is None else found.decode(link.info.encoding)


def _by_cursor(connection: BaseDatabaseWrapper, statement: str, values: list[Value]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()[0]


def run(connection: BaseDatabaseWrapper, statement: str, values: list[Value]) -> None:
    """Run a statement that returns one row, and discard the row; see `integer`."""
    link = usable(connection, begins=True)
    if link is None:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
        return
    with connection.wrap_database_errors:
        _send(link, statement, values)


def begin(connection: BaseDatabaseWrapper) -> bool:
    """Begin a transaction by `BEGIN`, which psycopg would do before the next statement.

    Return False if psycopg has to do it, or if a transaction is open.
    """
    link = usable(connection, begins=True)
    if link is None or link.autocommit or link.pgconn.transaction_status != _IDLE:
        return False
    with connection.wrap_database_errors:
        (result,) = results(link, BEGIN)
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise errors.error_from_result(result, encoding=link.info.encoding)
    return True


def usable(
    connection: BaseDatabaseWrapper, *, begins: bool = False
) -> "psycopg.Connection[Any] | None":
    """Return psycopg's connection if it may be used to send a statement, or None.

    With `begins`, it may also be idle without autocommit, and the statement has to begin a
    transaction.
    """
    # `cursor()` begins in the same way, and raises inside an event loop.
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    link: Any = connection.connection
    if (
        not _HAS_ALL
        or type(link) is not psycopg.Connection
        or link.cursor_factory is not _Cursor
        or not connection.__dict__.keys().isdisjoint(_METHODS)
        or not _cursors.are_of_django(type(connection))
        or (
            connection.execute_wrappers
            and not execute_wrappers.are_for_others(connection.execute_wrappers)
        )
        or connection.needs_rollback
        or connection.queries_logged
    ):
        return None
    connection.validate_thread_sharing()
    server = link.pgconn
    status = server.transaction_status
    if status == _IDLE and not link.autocommit:
        # psycopg would have to begin a transaction.
        is_ready = begins and (link.read_only, link.deferrable) == (None, None)
    else:
        is_ready = status in (_IDLE, _IN_TRANSACTION)
    return link if is_ready and server.pipeline_status == pq.PipelineStatus.OFF else None


class _Cursors:
    """Whether the cursors of a class of connections are made only by Django's own code."""

    def __init__(self) -> None:
        #: The functions that were last found to be Django's.
        self._known: tuple[Any, ...] = ()

    def are_of_django(self, kind: Any) -> bool:
        functions = (
            kind.cursor,
            kind._cursor,
            kind._prepare_cursor,
            kind.make_cursor,
            kind.create_cursor,
            CursorWrapper.execute,
            _Cursor.execute,
        )
        known = self._known
        # They are compared by identity, because the wrapper of a function may be equal to it.
        if known and all(map(is_, functions, known)):
            return True
        if not all(map(_is_of_django, functions)):
            return False
        self._known = functions
        return True


_cursors: Final = _Cursors()


def _is_of_django(function: Any) -> bool:
    # Django's own decorator wraps functions of other modules too.
    return all(
        type(each) is FunctionType and each.__globals__["__name__"] in _MODULES
        for each in (function, inspect.unwrap(function))
    )


def _send(link: "psycopg.Connection[Any]", statement: str, values: list[Value]) -> bytes | None:
    query = with_literals(link, statement, values)
    if not link.autocommit and link.pgconn.transaction_status == _IDLE:
        # psycopg would begin the transaction by another message.
        level = link.isolation_level
        how = "" if level is None else f" ISOLATION LEVEL {level.name.replace('_', ' ')}"
        query = f"BEGIN{how}; ".encode() + query
    *_, result = results(link, query)
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise errors.error_from_result(result, encoding=link.info.encoding)
    returned: bytes | None = result.get_value(0, 0)
    return returned


def with_literals(
    link: "psycopg.Connection[Any]", statement: str, values: Iterable[Value]
) -> bytes:
    """Return a statement with its values, one for each `%s`, as literals."""
    quote = pq.Escaping(link.pgconn).escape_literal
    literals = []
    for value in values:
        if isinstance(value, str):
            text = value.encode() if value.isascii() else value.encode(link.info.encoding)
            literals.append(quote(text))
        else:
            literals.append(str(value).encode())
    return statement.encode() % tuple(literals)


def results(link: "psycopg.Connection[Any]", query: bytes) -> "list[pq.abc.PGresult]":
    """Send a query, which may be several statements, and return the result of each.

    If a statement fails, its result is the last one, and no error is raised.
    """
    with link.lock:
        return link.wait(_execute(link.pgconn, query))


def _execute(server: "pq.abc.PGconn", query: bytes) -> Generator[Any, Any, Any]:
    # This runs inside `wait`, which cancels the query and reads the result if it is interrupted.
    server.send_query(query)
    return (yield from generators.execute(server))
