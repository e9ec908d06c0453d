"""The database that holds the jobs, and the repetition of short transactions after contention.

A new database is a line in `_DIALECTS`, a module in `dialects` and a folder in `dialects/sql`, and
its functions and triggers in `migrations/sql`.
"""

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

from django.apps import apps
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    NotSupportedError,
    OperationalError,
    connections,
    router,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage.dialects.base import Dialect
from django_ojs.storage.dialects.mariadb import MariaDB
from django_ojs.storage.dialects.postgresql import PostgreSQL
from django_ojs.storage.dialects.sqlite import SQLite

P = ParamSpec("P")
T = TypeVar("T")

#: After a contention error the operation runs again this often before the caller gets the error;
#: the pauses add up to about six seconds.
RETRIES = 8
FIRST_PAUSE = 0.02

#: Rows that maintenance and bulk operations change in one transaction: some milliseconds of work,
#: so that no other transaction waits long for their locks.
BATCH = 500

_DIALECTS: dict[str, Dialect] = {
    "postgresql": PostgreSQL(),
    "sqlite": SQLite(),
    # Django's vendor of MariaDB as well; the check refuses MySQL.
    "mysql": MariaDB(),
}


class OptionalError(DatabaseError):
    """A statement failed without which its transaction is better than no transaction.

    `retried` runs the operation again, without such statements.
    """


#: Whether the operation runs again without its optional statements.
_degraded: Final[ContextVar[bool]] = ContextVar("django_ojs_degraded", default=False)


class NeedsPrimary(Exception):
    """What reads the replica has something to write, which it must decide on the primary."""


#: The alias of the replica, while queries that may read it run.
_replica: Final[ContextVar[str | None]] = ContextVar("django_ojs_replica", default=None)


def alias() -> str:
    """Return the alias that queries use: that of the replica within `on_replica`, or the primary's.

    See `storage.replica`.
    """
    return _replica.get() or primary_alias()


def primary_alias() -> str:
    """Return the alias that the routers name for writing a Job."""
    # Every statement asks; most sites have no router.
    if not router.routers:
        return DEFAULT_DB_ALIAS
    return router.db_for_write(apps.get_model("django_ojs", "Job"))


@contextmanager
def on_replica(using: str) -> Iterator[None]:
    """Let the queries of this thread use the alias of a replica, until the block ends."""
    token = _replica.set(using)
    try:
        yield
    finally:
        _replica.reset(token)


@contextmanager
def on_primary() -> Iterator[None]:
    """Let queries use the primary, also within `on_replica`."""
    token = _replica.set(None)
    try:
        yield
    finally:
        _replica.reset(token)


def is_on_replica() -> bool:
    """Say whether queries use the alias of a replica now."""
    return _replica.get() is not None


def connection(using: str | None = None) -> BaseDatabaseWrapper:
    """Return this thread's connection to the jobs' database, or to another alias."""
    return connections[using or alias()]


def dialect(using: str | None = None) -> Dialect:
    """Return the dialect of the jobs' database, or of another alias."""
    return dialect_of(connection(using))


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the dialect of a connection. Raises NotSupportedError naming the database."""
    try:
        return _DIALECTS[connection.vendor]
    except KeyError:
        raise NotSupportedError(
            "django_ojs keeps jobs in PostgreSQL, SQLite or MariaDB; "
            f"the alias {connection.alias!r} is {connection.vendor}."
        ) from None


def is_unavailable(error: BaseException) -> bool:
    """Say whether the jobs' database cannot be reached or written to now (see the dialect)."""
    return dialect().is_unavailable_error(error)


def client_options(using: str) -> dict[str, Any]:
    """Return the driver's options by which a worker notices that the server of an alias is gone."""
    found = _DIALECTS.get(connections[using].vendor)
    return (
        {} if found is None else found.client_options(connections[using].settings_dict["OPTIONS"])
    )


def leave_if_read_only(error: BaseException) -> None:
    """Let Django close this thread's connection if the error says that its server is read-only.

    The server may have been the primary until now, or the name of the primary may lead to it for a
    while. Its connection works, so Django would keep it.
    """
    link = connection()
    if link.connection is not None and dialect_of(link).is_read_only_error(error):
        # The end of a request closes it, where a transaction is open now.
        link.close_at = time.monotonic()
        if not link.in_atomic_block:
            link.close()


def unavailable_reason(error: Exception) -> str:
    """Return why the database cannot be used: the class of the error, and the server's reason.

    Only known phrases are taken from its text, which could hold values.
    """
    found = _REASONS.search(str(error))
    name = type(error).__name__
    return f"{name}: {found['fatal'] or found[0]}" if found else name


#: FATAL is what PostgreSQL sends when it refuses or ends a connection.
_REASONS: Final = re.compile(
    r"FATAL:\s+(?P<fatal>[^\n]+)|connection refused|connection timeout expired|"
    r"could not translate host name|failed to resolve host|unable to open database file|"
    r"attempt to write a readonly database|server closed the connection unexpectedly|"
    r"database is locked|session is read-only|canceling statement due to (lock|statement) timeout",
    re.IGNORECASE,
)


def retried(operation: Callable[[], T], using: str | None = None) -> T:
    """Run an operation that is one transaction of its own, again after a contention error.

    That is the error when the database ended a deadlock or a lock wait. After an OptionalError it
    runs again without what failed. Inside a caller's `atomic()` contention is raised, because only
    the caller can repeat its transaction. Raises NeedsPrimary within `on_replica`: what is
    read there decides no write.
    """
    if using is None and is_on_replica():
        raise NeedsPrimary
    link = connection(using)
    if link.in_atomic_block:
        try:
            return operation()
        except OptionalError:
            # The savepoint of the operation was rolled back: the caller's transaction is usable.
            with _without_optional():
                return operation()
    pause = FIRST_PAUSE
    for left in range(RETRIES, -1, -1):
        try:
            return operation()
        except OperationalError as error:
            if not left or not dialect_of(link).is_contention_error(error):
                raise
        except OptionalError:
            with _without_optional():
                return retried(operation, using)
        # Full jitter, so that two transactions that collided do not collide again.
        time.sleep(random.uniform(0, pause))
        pause = min(pause * 2, 2.0)
    raise AssertionError("unreachable")


@contextmanager
def _without_optional(value: bool = True) -> Iterator[None]:
    token = _degraded.set(value)
    try:
        yield
    finally:
        _degraded.reset(token)


def run_optional(statement: Callable[[], object]) -> None:
    """Run a statement of a transaction, which is left out when that begins again after its error.

    A savepoint would cost two round trips each time; this costs a transaction where it fails. In a
    caller's `atomic()` only the operation begins again, in the savepoint that it opens itself.
    Raises OptionalError, and the errors that a repetition or a new connection cures.
    """
    if _degraded.get():
        return
    try:
        statement()
    except DatabaseError as error:
        if is_unavailable(error):  # Contention included.
            raise
        raise OptionalError(str(error)) from error


def in_write_transaction(operation: Callable[[], T], using: str | None = None) -> T:
    """Run an operation in a transaction that holds the write lock from its start.

    Only where a database has just one such lock.
    """

    def attempt() -> T:
        with transaction.atomic(using=using or alias()):
            dialect(using).begin_write(connection(using))
            return operation()

    return retried(attempt, using)


def retry_contention(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that is one transaction of its own: each call goes through `retried`."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return retried(partial(function, *args, **kwargs))

    return wrapper


def write_transaction(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function: each call goes through `in_write_transaction`."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return in_write_transaction(partial(function, *args, **kwargs))

    return wrapper


def after_commit(then: Callable[[], object], using: str | None = None) -> None:
    """Call `then` once the caller's transaction has committed, or now outside of one.

    Its errors are logged and not raised; Django names the function in the log, so it must not be a
    `partial`. With `set_autocommit(False)` and no `atomic()`, Django does not know of the commit:
    then it is not called.
    """
    link = connection(using)
    if link.in_atomic_block or link.get_autocommit():
        if _degraded.get():
            then = _complete(then)
        link.on_commit(then, robust=True)


def _complete(then: Callable[[], object]) -> Callable[[], object]:
    """Return a function after whose transaction others run with their optional statements."""

    @wraps(then)
    def called() -> None:
        with _without_optional(False):
            then()

    return called


def atomic() -> transaction.Atomic:
    """Open a transaction, or a savepoint in the caller's, on the jobs' database."""
    return transaction.atomic(using=alias())
