"""The database that holds the jobs, and the repetition of short transactions after contention.

A new database is a line in `_DIALECTS`, a module in `dialects` and a folder in `dialects/sql`, and
its functions and triggers in `migrations/sql`.
"""

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from django.apps import apps
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    NotSupportedError,
    OperationalError,
    connections,
    models,
    router,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.conf import settings
from django_ojs.spec.errors import RowLocked
from django_ojs.storage import in_memory_state
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

#: By Django's vendor. MariaDB and MySQL have the same one, and MySQL is not supported.
_DIALECTS: dict[str, Dialect] = {
    "postgresql": PostgreSQL(),
    "sqlite": SQLite(),
    "mysql": MariaDB(),
}


class OptionalError(DatabaseError):
    """A statement failed without which its transaction is better than no transaction.

    `retried` runs the operation again, without such statements.
    """


#: Whether the operation runs again without its optional statements.
_degraded: Final[ContextVar[bool]] = ContextVar("django_ojs_degraded", default=False)


#: For how many seconds the row of a job is tried again that another session has locked; None: the
#: statement waits until that session's transaction ends.
_row_timeout: Final[ContextVar[float | None]] = ContextVar("django_ojs_row_timeout", default=None)


@contextmanager
def passing_by(timeout: float = 0.0) -> Iterator[None]:
    """Wait for no row of a job that another session has locked, until the block ends.

    What is about one job raises RowLocked, after `timeout` seconds. For a worker, which has the
    outcomes of other jobs to store, and for a server, whose threads have other requests.
    """
    with having(_row_timeout, timeout):
        yield


def passes_by() -> bool:
    """Whether this is within `passing_by`."""
    return _row_timeout.get() is not None


class NeedsPrimary(Exception):
    """What reads the replica has something to write, which it must decide on the primary."""


#: The database that a piece of work is for, where a site has several.
_selected: Final[ContextVar[str | None]] = ContextVar("django_ojs_database", default=None)

#: The alias of the replica, while queries that may read it run.
_replica: Final[ContextVar[str | None]] = ContextVar("django_ojs_replica", default=None)


def alias() -> str:
    """Return the alias that queries use: that of the replica within `on_replica`, or the primary's.

    See `storage.replica`.
    """
    return _replica.get() or primary_alias()


def primary_alias() -> str:
    """Return the alias that holds the jobs of this piece of work.

    With DATABASES that is the one that `using` names, or this process works on, or the first one;
    without, the one that the routers name for writing a Job.
    """
    if (selected := _selected.get()) is not None:
        return selected
    if several := settings().databases:
        return _process.alias if _process.alias in several else several[0]
    # Every statement asks; most sites have no router.
    if not router.routers:
        return DEFAULT_DB_ALIAS
    return router.db_for_write(apps.get_model("django_ojs", "Job"))


def aliases() -> tuple[str, ...]:
    """Return the aliases of all databases that hold jobs; the first one is the home."""
    return settings().databases or (primary_alias(),)


@contextmanager
def having(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a context variable have a value, until the block ends."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def using(alias: str | None) -> AbstractContextManager[None]:
    """Work on the jobs of one database, until the block ends; None: as without it."""
    return nullcontext() if alias is None else having(_selected, alias)


def of_row(row: models.Model) -> AbstractContextManager[None]:
    """Work on the database of a row that was read or stored, where jobs are in several."""
    alias = row._state.db
    return using(alias if alias in settings().databases else None)


def at_home(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function: it works on the first of several databases, whichever is selected."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        several = settings().databases
        with using(several[0] if several else None):
            return function(*args, **kwargs)

    return wrapper


def is_to_be_chosen() -> bool:
    """Whether jobs are in several databases, and this is not within `using`."""
    return bool(settings().databases) and _selected.get() is None


class _Process:
    """The database that this process works on, unless `using` names another one."""

    def __init__(self) -> None:
        self.alias: str | None = None


_process: Final = _Process()


def select_for_process(alias: str | None) -> None:
    """Let all threads of this process work on the jobs of one database: it is a worker's."""
    _process.alias = alias


@contextmanager
def selected_for_process(alias: str | None) -> Iterator[None]:
    """Let this process work on the jobs of one database, until the block ends; None: as before."""
    before = _process.alias
    _process.alias = before if alias is None else alias
    try:
        yield
    finally:
        _process.alias = before


class _PerDatabase:
    """Stands for the object of the database that the current work is for; each has its own."""

    __slots__ = ("_by_alias", "_make")

    def __init__(self, make: Callable[[], in_memory_state.Resettable]) -> None:
        object.__setattr__(self, "_make", make)
        object.__setattr__(self, "_by_alias", {})

    def _new(self) -> in_memory_state.Resettable:
        by_alias: dict[str, in_memory_state.Resettable] = self._by_alias
        # Two threads may make it at the same time: the first one counts for both.
        return by_alias.setdefault(primary_alias(), self._make())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._by_alias.get(primary_alias()) or self._new(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._by_alias.get(primary_alias()) or self._new(), name, value)

    def reset(self) -> None:
        """Return to the state of a new process, for all databases."""
        for each in self._by_alias.values():
            each.reset()


def per_database(make: Callable[[], in_memory_state.R]) -> in_memory_state.R:
    """Register what this process remembers of a database, one object for each of them."""
    return cast("in_memory_state.R", in_memory_state.register(_PerDatabase(make)))


def on_replica(using: str) -> AbstractContextManager[None]:
    """Let the queries of this thread use the alias of a replica, until the block ends."""
    return having(_replica, using)


def on_primary() -> AbstractContextManager[None]:
    """Let queries use the primary, also within `on_replica`."""
    return having(_replica, None)


def is_on_replica() -> bool:
    """Say whether queries use the alias of a replica now."""
    return _replica.get() is not None


def connection(using: str | None = None) -> BaseDatabaseWrapper:
    """Return this thread's connection to the jobs' database, or to another alias."""
    return connections[using or alias()]


def is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether autocommit is off, or an `atomic()` is open other than those of a TestCase.

    A TestCase's stands for a program without a transaction.
    """
    if not connection.in_atomic_block:
        # Closed, its attribute says nothing.
        return connection.connection is not None and not connection.autocommit
    blocks: list[Any] = connection.atomic_blocks
    return not all(getattr(block, "_from_testcase", False) for block in blocks)


def is_transaction_open(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open that something has begun: `atomic()`, BEGIN, or no autocommit.

    The server is not asked. Where a project has set AUTOCOMMIT to False, each query begins one.
    """
    if connection.in_atomic_block:
        return True
    if connection.connection is None or not connection.settings_dict["AUTOCOMMIT"]:
        return False
    known = _DIALECTS.get(connection.vendor)
    return not connection.autocommit if known is None else known.is_transaction_open(connection)


def kind() -> str:
    """Return the name of the jobs' database: postgresql, sqlite or mariadb."""
    vendor = connection().vendor
    return "mariadb" if vendor == "mysql" else vendor


def dialect(using: str | None = None) -> Dialect:
    """Return the dialect of the jobs' database, or of another alias."""
    return dialect_of(connection(using))


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the dialect of a connection. Raises NotSupportedError naming the database."""
    found = _DIALECTS.get(connection.vendor)
    if found is None or (connection.vendor == "mysql" and _is_mysql(connection)):
        name = connection.vendor if found is None else "MySQL. Use MariaDB 10.11 or newer"
        raise NotSupportedError(
            "django_ojs keeps jobs in PostgreSQL, SQLite or MariaDB; "
            f"the alias {connection.alias!r} is {name}."
        )
    return found


def _is_mysql(connection: BaseDatabaseWrapper) -> bool:
    # The server has said so when it was connected to; this must not wait for one that is away.
    link: Any = connection
    return link.connection is not None and not link.mysql_is_mariadb


def is_unavailable(error: BaseException) -> bool:
    """Say whether the jobs' database cannot be reached or written to now (see the dialect)."""
    return dialect().is_unavailable_error(error)


def is_stopped(error: BaseException) -> bool:
    """Say whether the server stopped a statement that may pass with less to do, or later.

    It took longer than its timeout, or waited for locks of other transactions. Where there is one
    lock, less would wait for it as well.
    """
    found = dialect()
    if found.has_one_writer:
        return False
    is_locked = isinstance(error, OperationalError) and found.is_contention_error(error)
    return is_locked or found.is_timeout_error(error)


def client_options(using: str) -> dict[str, Any]:
    """Return the driver's options by which a worker notices that the server of an alias is gone."""
    link = connections[using]
    found = _DIALECTS.get(link.vendor)
    return {} if found is None else found.client_options(link.settings_dict["OPTIONS"])


def notice_dead_server(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Let a worker's new connection end soon when the machine of its server is off (a receiver)."""
    if (found := _DIALECTS.get(connection.vendor)) is not None:
        found.notice_dead_server(connection)


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


#: FATAL is what PostgreSQL sends when it rejects or ends a connection.
_REASONS: Final = re.compile(
    r"FATAL:\s+(?P<fatal>[^\n]+)|connection refused|connection timeout expired|"
    r"could not translate host name|failed to resolve host|unable to open database file|"
    r"attempt to write a readonly database|server closed the connection unexpectedly|"
    r"database is locked|session is read-only|canceling statement due to (lock|statement) timeout|"
    r"unknown database|unknown server host|can't connect to (local )?server|access denied for user|"
    r"too many connections|server has gone away|lost connection to server|running with the "
    r"--read-only option|WSREP has not yet prepared node|MariaDB has read triggers in part[^']+",
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
            with having(_degraded, True):
                return operation()
    pause = FIRST_PAUSE
    until = time.monotonic() + (_row_timeout.get() or 0.0)
    for left in range(RETRIES, -1, -1):
        try:
            return operation()
        except RowLocked:
            if not left or time.monotonic() + pause > until:
                raise
        except OperationalError as error:
            if not left or not dialect_of(link).is_contention_error(error):
                raise
        except OptionalError:
            with having(_degraded, True):
                return retried(operation, using)
        # Full jitter, so that two transactions that collided do not collide again.
        time.sleep(random.uniform(0, pause))
        pause = min(pause * 2, 2.0)
    raise AssertionError("unreachable")


def run_optional(statement: Callable[[], object]) -> bool:
    """Run a statement of a transaction, which is left out when that begins again after its error.

    A savepoint would cost two round trips each time; this costs a transaction where it fails. In a
    caller's `atomic()` only the operation begins again, in the savepoint that it opens itself.
    Return whether it was run. Raises OptionalError, and the errors that a repetition or a new
    connection cures.
    """
    if _degraded.get():
        return False
    try:
        statement()
    except DatabaseError as error:
        if is_unavailable(error):  # Contention included.
            raise
        raise OptionalError(str(error)) from error
    return True


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
        if link.alias in settings().databases:
            then = _on(link.alias, then)
        if _degraded.get():
            then = _complete(then)
        link.on_commit(then, robust=True)


def _on(alias: str, then: Callable[[], object]) -> Callable[[], object]:
    """Return a function that works on the database whose transaction it follows."""

    @wraps(then)
    def called() -> None:
        with using(alias):
            then()

    return called


def _complete(then: Callable[[], object]) -> Callable[[], object]:
    """Return a function after whose transaction others run with their optional statements."""

    @wraps(then)
    def called() -> None:
        with having(_degraded, False):
            then()

    return called


def atomic() -> transaction.Atomic:
    """Open a transaction, or a savepoint in the caller's, on the jobs' database."""
    return transaction.atomic(using=alias())
