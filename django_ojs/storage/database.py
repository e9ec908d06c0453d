"""The database that holds the jobs, and the repetition of short transactions after contention.

An app adds databases by `ojs_dialects` of its AppConfig: paths of dialect classes, by Django's
vendor. `django_ojs` itself adds PostgreSQL and SQLite.
"""

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial, wraps
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

from django.apps import apps
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    Error,
    NotSupportedError,
    OperationalError,
    connections,
    router,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet
from django.utils.module_loading import import_string

from django_ojs.not_installed import line_for_database
from django_ojs.spec.errors import RowLocked
from django_ojs.storage.dialects.base import Dialect

P = ParamSpec("P")
T = TypeVar("T")

#: After a contention error the operation runs again this often before the caller gets the error;
#: the pauses add up to at most 4.5 seconds.
RETRIES = 8
FIRST_PAUSE = 0.02

#: Seconds that a caller waits for what is done on another connection (see `elsewhere`).
ELSEWHERE_TIMEOUT: Final = 10.0

#: Seconds for which a caller that has other work waits for a lock. Most transactions hold a lock
#: for less.
SHORT_LOCK_TIMEOUT: Final = 0.1
SHORT_LOCK_TIMEOUT_MS: Final = 100
#: Seconds for which the locked row of a job is tried again: less than SHORT_LOCK_TIMEOUT, so that
#: the error names the job.
_ROW_TIMEOUT: Final = 0.08
#: `SHORT_LOCK_TIMEOUT` for a database with one lock for all writers, which wait for it in turn.
_ONE_WRITER_TIMEOUT: Final = 5.0

#: Rows that maintenance and bulk operations change in one transaction: some milliseconds of work,
#: so that no other transaction waits long for their locks.
BATCH = 500

#: The connections of all threads.
_watched: Final[WeakSet[BaseDatabaseWrapper]] = WeakSet()
_watched_lock: Final = threading.Lock()


class OptionalError(DatabaseError):
    """A statement failed that its transaction can do without.

    `retried` runs the operation again, without such statements.
    """


#: Whether the operation runs again without its optional statements.
_degraded: Final[ContextVar[bool]] = ContextVar("django_ojs_degraded", default=False)


#: Whether the caller hardly waits for locks of other sessions.
_hardly_waits: Final[ContextVar[bool]] = ContextVar("django_ojs_hardly_waits", default=False)

#: For how many seconds a row that another session has locked is tried again. None: the statement
#: waits until that session's transaction ends.
_row_timeout: Final[ContextVar[float | None]] = ContextVar("django_ojs_row_timeout", default=None)


@contextmanager
def _having(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def passing_by(timeout: float = 0.0) -> Iterator[None]:
    """Wait for no row of a job that another session has locked, until the block ends.

    An operation on one job raises RowLocked, after `timeout` seconds. This is for a worker, which
    has the outcomes of other jobs to store, and for a server, whose threads have other requests.
    """
    with _having(_row_timeout, timeout):
        yield


def passes_by() -> bool:
    """Whether this is within `passing_by`."""
    return _row_timeout.get() is not None


def alias() -> str:
    """Return the alias that holds the jobs: the one that the routers name for writing a Job."""
    if not router.routers:
        return DEFAULT_DB_ALIAS
    return router.db_for_write(apps.get_model("django_ojs", "Job"))


def connection(using: str | None = None) -> BaseDatabaseWrapper:
    """Return this thread's connection to the jobs' database, or to another alias."""
    if using is None:
        # This is asked for every statement, and most sites have no router.
        using = alias() if router.routers else DEFAULT_DB_ALIAS
    return connections[using]


def is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether autocommit is off, or an `atomic()` other than those of a TestCase is open.

    The latter do not count, because they exist only in tests.
    """
    if not connection.in_atomic_block:
        # `autocommit` of a closed connection says nothing.
        return connection.connection is not None and not connection.autocommit
    blocks: list[Any] = connection.atomic_blocks
    return not all(map(is_of_test, blocks))


def is_of_test(block: object) -> bool:
    """Whether a TestCase has opened this `atomic()`, around a test or all tests of its class."""
    return getattr(block, "_from_testcase", False)


def is_transaction_open(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open that was begun by `atomic()`, by BEGIN or without autocommit.

    The server is not asked. If the project sets AUTOCOMMIT to False, each query begins one, which
    does not count.
    """
    if connection.in_atomic_block:
        return True
    if connection.connection is None or not connection.settings_dict["AUTOCOMMIT"]:
        return False
    known = of_vendor(connection.vendor)
    return not connection.autocommit if known is None else known.is_transaction_open(connection)


def kind() -> str:
    """Return the name of the jobs' database: postgresql, sqlite or mariadb."""
    return dialect().name


def dialect(using: str | None = None) -> Dialect:
    """Return the dialect of the jobs' database, or of another alias."""
    return dialect_of(connection(using))


@cache
def of_vendor(vendor: str) -> Dialect | None:
    """Return the dialect for a vendor of Django, or None if no installed app adds one.

    The first call imports its module.
    """
    for config in apps.get_app_configs():
        brought: Mapping[str, str] = getattr(config, "ojs_dialects", {})
        if vendor in brought:
            found: Dialect = import_string(brought[vendor])()
            return found
    return None


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    """Return the dialect of a connection. Raises NotSupportedError naming the database."""
    found = of_vendor(connection.vendor)
    other = connection.vendor if found is None else None
    if found is not None and found.other_product is not None:
        other = found.other_product(connection)
    if found is None or other is not None:
        said = not_supported(connection.alias, str(other))
        line = line_for_database(connection.vendor) if found is None else None
        raise NotSupportedError(f"{said} {line}" if line else said)
    return found


def not_supported(using: str, name: str) -> str:
    """Return the error message for an alias with an unsupported database, called `name`."""
    return f"django_ojs keeps jobs in PostgreSQL, SQLite or MariaDB; the alias {using!r} is {name}."


def is_unavailable(error: BaseException) -> bool:
    """Say whether the jobs' database cannot be reached or written to now (see the dialect)."""
    return dialect().is_unavailable_error(error)


def is_stopped(error: BaseException) -> bool:
    """Say whether the server stopped a statement that may pass with less to do, or later.

    The statement took longer than its timeout, or waited for locks of other transactions. Where one
    lock serves all writers, a smaller statement would wait for it as well.
    """
    found = dialect()
    if found.has_one_writer:
        return False
    is_locked = isinstance(error, OperationalError) and found.is_contention_error(error)
    return is_locked or found.is_timeout_error(error)


def is_conflict(error: BaseException) -> bool:
    """Say whether a handler's error is, or follows from, a conflict of transactions.

    That is a serialization failure or a deadlock: the same transaction may pass when it runs again.
    """
    link: Any = connection()
    of_driver, seen = link.Database.Error, set[int]()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        if isinstance(following, of_driver) and dialect_of(link).is_conflict_error(following):
            return True
        seen.add(id(following))
        # Without `raise ... from`, only an error of the database follows from the one before it:
        # the transaction has ended, so each other statement of it fails.
        is_of_database = isinstance(following, (Error, of_driver))
        following = following.__cause__ or (following.__context__ if is_of_database else None)
    return False


def client_options(using: str) -> dict[str, Any]:
    """Return the driver's options by which a worker notices that the server of an alias is gone."""
    link = connections[using]
    found = of_vendor(link.vendor)
    return {} if found is None else found.client_options(link.settings_dict["OPTIONS"])


def notice_dead_server(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Let a worker's new connection end soon when the machine of its server is off (a receiver)."""
    if (found := of_vendor(connection.vendor)) is not None:
        found.notice_dead_server(connection)


def watch(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Remember a connection that has been made (a receiver)."""
    with _watched_lock:
        _watched.add(connection)


def recheck(*, healthy: bool = False) -> None:
    """Let connections on which a statement failed be checked before their next statement.

    With `healthy`, all connections are checked. This is for threads that a handler uses without
    knowing it, such as those of `asyncio.to_thread`. The worker's own threads do it themselves.
    Without `CONN_HEALTH_CHECKS`, which a worker sets, it does nothing.
    """
    with _watched_lock:
        links: list[Any] = [link for link in _watched if healthy or link.errors_occurred]
    if not links:
        return
    own = {each.ident for each in threading.enumerate() if each.name.startswith("ojs-")}
    for link in links:
        # A handler may use a database that could not have jobs.
        found = of_vendor(link.vendor)
        if found is not None and link._thread_ident not in own and found.is_free(link):
            link.health_check_done = False


def watched() -> list[BaseDatabaseWrapper]:
    """Return the open connections of this process, of any thread, to the server with the jobs."""
    own = connections.settings[alias()]
    with _watched_lock:
        links = list(_watched)
    return [
        link
        for link in links
        if link.connection is not None
        and all(link.settings_dict[name] == own[name] for name in ("ENGINE", "HOST", "PORT"))
    ]


def end(link: BaseDatabaseWrapper) -> bool:
    """End a connection of any thread, so that a wait for its reply fails now.

    Return whether it was ended. A connection with something to read is left alone.
    """
    number = dialect_of(link).descriptor(link)
    if number is None:
        return False
    try:
        with socket.socket(fileno=os.dup(number)) as duplicate:
            # The thread may have closed the connection, and another may have its number now.
            if dialect_of(link).descriptor(link) != number:
                return False
            try:
                duplicate.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                duplicate.shutdown(socket.SHUT_RDWR)
                return True
    except OSError:
        pass
    return False


def leave_if_read_only(error: BaseException) -> None:
    """Let Django close this thread's connection if the error says that its server is read-only.

    The server may have been the primary until now, or the host name of the primary may lead to it
    for a while. The connection works, so Django would keep it.
    """
    link = connection()
    if link.connection is not None and dialect_of(link).is_read_only_error(error):
        # If a transaction is open now, the end of the request closes the connection.
        link.close_at = time.monotonic()
        if not link.in_atomic_block:
            link.close()


def unavailable_reason(error: Exception) -> str:
    """Return why the database cannot be used: the class of the error, and the server's reason.

    Only phrases that the dialect knows are taken from its text, which could hold values.
    """
    known = of_vendor(connection().vendor)
    found = known.reasons.search(str(error)) if known is not None else None
    name = type(error).__name__
    # The phrase is the last group, if the pattern has groups.
    return f"{name}: {found[found.lastindex or 0]}" if found else name


def without_values(error: BaseException) -> BaseException:
    """Return an error for `exc_info`: itself, or a copy if the database has rejected a statement.

    The database's message may contain values of a row, such as arguments and results. The copy has
    the reason, SQLSTATE and constraint instead, and keeps the traceback.
    """
    found = next((each for each in _chain(error) if isinstance(each, Error)), None)
    if found is None:
        return error
    known = getattr(found.__cause__, "diag", None)
    details = [getattr(known, name, None) for name in ("sqlstate", "constraint_name")]
    text = ", ".join([unavailable_reason(found), *filter(None, details)])
    if found is not error:
        text = f"{type(error).__qualname__}, after {text}"
    return Error(text).with_traceback(error.__traceback__)


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return found


@contextmanager
def hardly_waiting() -> Iterator[None]:
    """Wait for the lock of another session for a tenth of a second at most, in the block.

    With one writer at a time, wait for five seconds. Then a write raises a contention error, and
    the caller's thread is free for other requests: a server has few threads for all its clients.
    """
    link = connection()
    with _having(_hardly_waits, True), passing_by(_ROW_TIMEOUT):
        if is_in_transaction(link):  # ATOMIC_REQUESTS opens one, for example.
            dialect_of(link).limit_lock_waits(link, SHORT_LOCK_TIMEOUT_MS)
        yield


def waiting() -> AbstractContextManager[None]:
    """Wait for locks as usual, also within `hardly_waiting`.

    This is for a lock that only requests take, each for a moment. Under load, some dozens may take
    it in turn.
    """
    return _having(_hardly_waits, False)


def hardly_waits() -> bool:
    """Whether this is within `hardly_waiting`."""
    return _hardly_waits.get()


def _lock_timeout(link: BaseDatabaseWrapper) -> AbstractContextManager[None]:
    # In a savepoint, the transaction has the limit already.
    if not _hardly_waits.get() or link.savepoint_ids:
        return nullcontext()
    found = dialect_of(link)
    if found.limit_lock_waits(link, SHORT_LOCK_TIMEOUT_MS):
        return nullcontext()
    return found.lock_timeout(link, SHORT_LOCK_TIMEOUT_MS)


def may_pass(error: BaseException) -> bool:
    """Say whether a statement failed for a reason that passes: the database is away or busy."""
    return is_unavailable(error) or is_stopped(error) or is_conflict(error)


def has_waited_for_lock(error: BaseException) -> bool:
    """Whether a statement failed because of a lock of another session, or of a deadlock."""
    return isinstance(error, OperationalError) and dialect().is_contention_error(error)


def retried(operation: Callable[[], T], using: str | None = None) -> T:
    """Run an operation that is one transaction of its own, again after a contention error.

    A contention error means that the database ended a deadlock or a lock wait. After an
    OptionalError the operation runs again without optional statements. Inside a caller's `atomic()`
    contention is raised, because only the caller can repeat its transaction. Within
    `hardly_waiting` it is also raised once the time is over.
    """
    link = connection(using)
    if link.in_atomic_block:
        try:
            return operation()
        except OptionalError:
            # The savepoint of the operation was rolled back: the caller's transaction is usable.
            with _having(_degraded, True):
                return operation()
    pause, began = FIRST_PAUSE, time.monotonic()
    until = began + (_row_timeout.get() or 0.0)
    for left in range(RETRIES, -1, -1):
        try:
            return operation()
        except RowLocked:
            if not left or time.monotonic() + pause > until:
                raise
        except OperationalError as error:
            found = dialect_of(link)
            if not left or not found.is_contention_error(error):
                raise
            limit = _ONE_WRITER_TIMEOUT if found.has_one_writer else SHORT_LOCK_TIMEOUT
            if _hardly_waits.get() and time.monotonic() - began >= limit:
                raise
        except OptionalError:
            with _having(_degraded, True):
                return retried(operation, using)
        # Full jitter, so that two transactions that collided do not collide again.
        time.sleep(random.uniform(0, pause))
        pause = min(pause * 2, 2.0)
    raise AssertionError("unreachable")


def run_optional(statement: Callable[[], object]) -> bool:
    """Run an optional statement. If it fails, the transaction begins again without it.

    A savepoint would cost two round trips each time; this costs a transaction only if the statement
    fails. In a caller's `atomic()` only the operation begins again, in the savepoint that it opens
    itself. Return whether it was run. Raises OptionalError, and the errors that a repetition or a
    new connection cures.
    """
    if _degraded.get():
        return False
    try:
        statement()
    except DatabaseError as error:
        if is_unavailable(error):  # That includes contention.
            raise
        raise OptionalError(str(error)) from error
    return True


def in_write_transaction(operation: Callable[[], T], using: str | None = None) -> T:
    """Run an operation in a transaction that holds the write lock from its start.

    This has an effect only on a database that has one such lock.
    """
    return retried(partial(_write, using, operation), using)


def _write(using: str | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    link = connection(using)
    with transaction.atomic(using=link.alias):
        dialect_of(link).begin_write(link)
        with _lock_timeout(link):
            return function(*args, **kwargs)


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
        return retried(partial(_write, None, function, *args, **kwargs))

    return wrapper


def lock_free(rows: QuerySet[Any]) -> list[Any]:
    """Lock these rows, except those that another session has locked, and return their keys.

    This and the next two functions are for the maintenance: another process that has lost the lease
    may be in the same step, and waiting for its rows would cost this one the lease as well. Locked
    rows are left to the session that has locked them, or to the next call.
    """
    return list(rows.select_for_update(skip_locked=True).values_list("pk", flat=True))


def update_free(rows: QuerySet[Any], **values: object) -> int:
    """Change these rows, except those that another session has locked. Return how many."""
    return in_write_transaction(lambda: _of(rows, lock_free(rows)).update(**values), rows.db)


def delete_free(rows: QuerySet[Any], limit: int = BATCH) -> int:
    """Delete the first `limit` of these rows that no other session has locked. Return how many."""

    def operation() -> int:
        deleted = _of(rows, lock_free(rows[:limit])).delete()[1]
        return deleted.get(rows.model._meta.label, 0)

    # Usually there are none, and then no transaction is opened.
    return in_write_transaction(operation, rows.db) if rows.exists() else 0


def _of(rows: QuerySet[Any], keys: list[Any]) -> QuerySet[Any]:
    # The lock has checked the conditions on the rows as they are now.
    found: QuerySet[Any] = rows.model._base_manager.using(rows.db).filter(pk__in=keys)
    return found


def unpooled(using: str) -> BaseDatabaseWrapper:
    """Return a new connection that commits each statement, and that belongs to no pool."""
    link = connections.create_connection(using)
    options = {**link.settings_dict["OPTIONS"]}
    options.pop("pool", None)
    link.settings_dict = {**link.settings_dict, "OPTIONS": options, "AUTOCOMMIT": True}
    return link


class NotInTime(OperationalError):
    """What was to be done on another connection takes longer than the caller waits."""


def elsewhere(function: Callable[[], T], *, timeout: float | None = None) -> T:
    """Call a function outside of the caller's transaction, on another connection.

    Raises NotInTime after `timeout` seconds, by default ELSEWHERE_TIMEOUT: the caller may hold the
    lock, or the last connection of a pooler, for which the function waits.
    """
    done: Future[T] = Future()
    using, seconds = alias(), ELSEWHERE_TIMEOUT if timeout is None else timeout

    # Another thread has other connections.
    def run() -> None:
        try:
            connections[using] = unpooled(using)
            try:
                result = function()
            finally:
                connections.close_all()
            done.set_result(result)
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="ojs-elsewhere", daemon=True)
    thread.start()
    thread.join(seconds)
    if not done.done():
        raise NotInTime(f"A second connection to the database did not finish within {seconds:g} s.")
    return done.result()


def after_commit(then: Callable[[], object], using: str | None = None) -> None:
    """Call `then` once the caller's transaction has committed, or now outside of one.

    Its errors are logged and not raised; Django names the function in the log, so it must not be a
    `partial`. With `set_autocommit(False)` and no `atomic()`, Django does not know of the commit,
    and `then` is not called.
    """
    after_commit_of(connection(using), then)


def after_commit_of(link: BaseDatabaseWrapper, then: Callable[[], object]) -> None:
    """Do the same as `after_commit`, with a connection that the caller has found."""
    if link.in_atomic_block or link.get_autocommit():
        if _degraded.get():
            then = _complete(then)
        link.on_commit(then, robust=True)


def _complete(then: Callable[[], object]) -> Callable[[], object]:
    """Return a function that calls `then` with optional statements allowed again."""

    @wraps(then)
    def called() -> None:
        with _having(_degraded, False):
            then()

    return called


def atomic_if(wanted: object) -> AbstractContextManager[object]:
    """Open a transaction if one is wanted and none is open.

    This is for a single statement, which needs no transaction otherwise.
    """
    return atomic() if wanted and not connection().in_atomic_block else nullcontext()


def atomic() -> transaction.Atomic:
    """Open a transaction, or a savepoint in the caller's, on the jobs' database."""
    return transaction.atomic(using=alias())
