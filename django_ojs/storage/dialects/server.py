"""What a database is to its clients: sessions, transactions, locks, errors, and its own state."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeVar, cast
from uuid import UUID

from django.core.checks import CheckMessage
from django.db import InterfaceError, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage.dialects.rows import RowKind

R = TypeVar("R", bound=RowKind)

#: Limits one query to the timeout of `Dialect.query_timeout`.
QueryLimit = Callable[[], AbstractContextManager[None]]

#: A database session: the server's process id, and when it started. If a role may not see this
#: time, it cannot find out whether the session has ended.
Session = tuple[int, datetime | None]


@dataclass(frozen=True, slots=True)
class TableUse:
    """The rows of a table, whether autovacuum removes the dead ones, and its size.

    `needed` are the bytes that its rows need, as far as that is known.
    """

    statement: ClassVar = "table_use"

    name: str
    live: int
    dead: int
    autovacuum: bool
    size: int
    needed: int | None


@dataclass(frozen=True, slots=True)
class HorizonHolder:
    """What keeps VACUUM from removing rows: a transaction, a prepared one, a slot or a replica.

    `transactions` is how many have begun since the oldest whose rows it keeps. `wal_bytes` is the
    size of the WAL that a slot keeps.
    """

    statement: ClassVar = "horizon"

    kind: Literal["transaction", "prepared", "slot", "replica"]
    name: str
    detail: str
    age: timedelta | None
    transactions: int | None
    active: bool
    wal_bytes: int | None


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A session that keeps the rows of active jobs locked.

    `since` is when its transaction began, or None if this role may not see it. `job` is one of the
    jobs.
    """

    statement: ClassVar = "lock_holders"

    pid: int
    application: str
    since: datetime | None
    jobs: int
    job: UUID

    @property
    def name(self) -> str:
        """Its process id, and the name that it has given itself."""
        return (
            f"session {self.pid} ({self.application})"
            if self.application
            else f"session {self.pid}"
        )


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """How long the oldest other transaction has been open, if there is one, and the time.

    While it is open, no row that was changed since can be removed, and claims get slower.
    """

    statement: ClassVar = "oldest_transaction"

    age: timedelta | None
    now: datetime


@dataclass(frozen=True, slots=True)
class InvalidIndex:
    """An index on a table of django_ojs that was not built completely."""

    statement: ClassVar = "invalid_indexes"

    name: str


#: Who executes a claim or completions (see `transitions.keeping_plans`). True: a registered worker,
#: whose session keeps the plans. False: another client, whose session keeps them after many claims.
#: None, the default: as False, but without plans in a transaction. A lost plan would end it with an
#: error, and a caller's transaction is not tried again.
is_of_worker: Final[ContextVar[bool | None]] = ContextVar("ojs_claim_is_of_worker", default=None)


class Server(ABC):
    """What every statement needs of one database, and what only that database can say."""

    #: Its name: postgresql, sqlite or mariadb. Files such as `schema/<name>.sql` of an extension
    #: have this name, and so have folders of statements (see `storage.statements`).
    name: ClassVar[str]
    #: Returns the name of a server that has Django's vendor but is not supported, or None.
    other_product: Callable[[BaseDatabaseWrapper], str | None] | None = None
    #: Its statements, by the name of the file.
    sql: ClassVar[Mapping[str, str]]
    #: The files of its functions, triggers and indexes, in the order in which they are run (see
    #: `storage.schema`); `drop.sql` beside them is their reverse.
    schema: ClassVar[Sequence[Path]]
    #: Statements that drop something, by its kind, where `DROP <kind> <name>` is not enough.
    drop: ClassVar[Mapping[str, str]] = {}
    #: What else is executed after `flush`, which empties the tables of models only.
    after_flush: ClassVar[Sequence[str]] = ()
    #: The type of a JSON column, where Django's own rejects some JSON.
    json_type: ClassVar[str | None] = None
    #: Finds in an error why the database cannot be used. If a group matches, only that is shown.
    reasons: ClassVar[re.Pattern[str]]
    #: The path of the class or function that stops its clock in a test (see `testing.clock`).
    test_clock: ClassVar[str]
    #: The SQL of the time at which a statement began, in a statement that has parameters.
    now: ClassVar[str]
    #: The collation that compares text by its code points.
    binary_collation: ClassVar[str]
    #: Whether the database is a server that shows its sessions, its clock, and VACUUM.
    is_server: ClassVar[bool]
    #: The start of a statement that creates an index without locking out the writers.
    create_index: ClassVar[str]
    #: Whether a session can be notified of new work, so that idle workers need not poll for it.
    can_notify: ClassVar[bool]
    #: Whether writers of different rows wait for each other, so that maintenance leaves them gaps.
    has_one_writer: ClassVar[bool]
    #: Whether an UPDATE can return the rows that it has changed.
    has_update_returning: ClassVar[bool] = True
    #: The SQL of rows of a `{table}`, from one parameter that is a JSON array of objects; None if a
    #: statement takes the rows one after the other.
    records: ClassVar[str | None] = None

    def read(self, connection: BaseDatabaseWrapper, kind: type[R], values: Any = None) -> list[R]:
        """Return the rows of a statement that only reads.

        Return no rows if the database does not show them, and so has no such statement.
        """
        if kind.statement not in self.sql:
            return []
        return [kind(*row) for row in self._rows(connection, kind.statement, values)]

    def _rows(
        self, connection: BaseDatabaseWrapper, name: str, values: Any = None, **parts: str
    ) -> list[Any]:
        """Execute the statement of a file, completed with `parts`, and return its rows."""
        statement = self.sql[name]
        return self.rows(connection, statement.format(**parts) if parts else statement, values)

    def rows(
        self,
        connection: BaseDatabaseWrapper,
        statement: str,
        values: Any,
        *,
        is_repeated: bool = False,
    ) -> list[Any]:
        """Execute a statement, and return its rows.

        `is_repeated`: it belongs to a claim or to completions, and a session that repeats these may
        keep its plan (see `is_of_worker`).
        """
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())  # Not every driver returns a list.

    def _run(
        self, connection: BaseDatabaseWrapper, name: str, values: Any = None, **parts: str
    ) -> None:
        """Execute the statement of a file, completed with `parts`."""
        statement = self.sql[name]
        with connection.cursor() as cursor:
            cursor.execute(statement.format(**parts) if parts else statement, values)

    def which_hold(
        self, connection: BaseDatabaseWrapper, conditions: Sequence[str], values: Sequence[str]
    ) -> list[bool]:
        """Return which of some conditions hold, written as in a statement that has parameters."""
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(conditions)}", values)
            return [bool(found) for found in cursor.fetchone()]

    def is_transaction_open(self, connection: BaseDatabaseWrapper) -> bool:
        """Return whether an open connection is in a transaction that no `atomic()` has begun.

        The answer is what the driver knows. A server is asked only where that is not enough.
        """
        # Not every driver knows of a BEGIN. Without autocommit, the last statement has begun a
        # transaction.
        return not connection.autocommit

    def begin_write(self, connection: BaseDatabaseWrapper) -> None:  # noqa: B027  # SQLite has one lock
        """Begin a transaction of django_ojs that writes: take the write lock, if there is one.

        If `has_one_writer`, this changes nothing else, and may be called in any transaction.
        """

    @abstractmethod
    def lock_subject(
        self, connection: BaseDatabaseWrapper, subject: str, *, wait: bool = True
    ) -> bool:
        """Lock a subject, a word such as "events", until the transaction ends.

        Transactions that lock the same subject run one after the other. Without `wait`, return
        False if another transaction holds it; a database with one write lock waits for that lock.
        """

    def read_committed(self, connection: BaseDatabaseWrapper) -> None:  # noqa: B027  # SQLite has one writer
        """Let each statement of a beginning transaction see what was committed before it.

        A caller's transaction keeps its isolation level.
        """

    def end_if_idle(self, connection: BaseDatabaseWrapper, milliseconds: int) -> None:  # noqa: B027  # PostgreSQL has such a limit
        """End the session if a beginning transaction waits this long for its next statement.

        A process that is frozen in the meantime must not keep the rows that it has locked. A
        caller's transaction has no such limit.
        """

    @contextmanager
    def lock_timeout(self, connection: BaseDatabaseWrapper, milliseconds: int) -> Iterator[None]:
        """Let statements of a transaction fail that wait longer than this for a lock.

        The error is a contention error. A database with one write lock has no other lock to wait
        for.
        """
        yield

    def limit_lock_waits(self, connection: BaseDatabaseWrapper, milliseconds: int) -> bool:
        """Do the same as `lock_timeout` until the transaction ends.

        Return whether this is possible.
        """
        return False

    @abstractmethod
    def ago(self, seconds: float) -> str:
        """Return the SQL of the time `seconds` ago, in a statement that has parameters."""

    @abstractmethod
    def ids(self, keys: Collection[UUID]) -> Any:
        """Return ids as one parameter of a statement."""

    @abstractmethod
    def texts(self, values: Collection[str]) -> Any:
        """Return texts as one parameter of a statement."""

    @abstractmethod
    def uuid(self, value: Any) -> UUID:
        """Convert an id of a raw row."""

    @abstractmethod
    def time(self, value: Any) -> datetime | None:
        """Convert a timestamp of a raw row."""

    def can_write(self, connection: BaseDatabaseWrapper, *, commits: bool = False) -> bool:
        """Return whether the session may write, unlike a session of a replica.

        With `commits`, try it with a small commit where this is possible.
        """
        return bool(self._rows(connection, "can_write")[0][0])

    def place(self, connection: BaseDatabaseWrapper, job_id: UUID) -> str | None:
        """Return where the row of a job is, if the transactions of a connection are serializable.

        It is called outside a transaction. It returns None if a row cannot be found by its place.
        """
        return None

    @abstractmethod
    def is_contention_error(self, error: OperationalError) -> bool:
        """Return whether the statement failed because of other transactions; a retry may pass.

        Such errors are a deadlock, a lock timeout, a serialization failure or a busy database.
        """

    def is_conflict_error(self, error: BaseException) -> bool:
        """Return whether an error of the driver ended a transaction that may pass if it runs again.

        Such errors are a serialization failure or a deadlock.
        """
        return False

    def leaves_transaction(self, error: OperationalError) -> bool:
        """Return whether it is a contention error that undid its statement, not the transaction."""
        return self.is_contention_error(error)

    def is_unavailable_error(self, error: BaseException) -> bool:
        """Return whether the database cannot be reached or written to now; a retry may succeed.

        It may be read-only for some seconds, during a failover.
        """
        return isinstance(error, (OperationalError, InterfaceError)) or self.is_read_only_error(
            error
        )

    def is_read_only_error(self, error: BaseException) -> bool:
        """Return whether the session rejects writes, although the server responds."""
        return False

    def is_timeout_error(self, error: BaseException) -> bool:
        """Return whether a statement was stopped because it took longer than its timeout."""
        return False

    @abstractmethod
    def query_timeout(
        self, connection: BaseDatabaseWrapper, seconds: float
    ) -> AbstractContextManager[QueryLimit]:
        """Open a block of queries, each of which is stopped after `seconds`.

        A query runs in a block of the returned limit. If it is stopped, it raises a DatabaseError,
        and other queries still run.
        """

    def notify(
        self, connection: BaseDatabaseWrapper, payloads: Sequence[str], channel: str
    ) -> None:
        """Notify the listeners of a channel, outside the caller's transaction.

        Only called if `can_notify`.
        """
        raise NotImplementedError

    def listen(self, connection: BaseDatabaseWrapper, channel: str) -> None:
        """Receive the notifications of a channel on this connection.

        Only called if `can_notify`.
        """
        raise NotImplementedError

    def notifications(self, connection: BaseDatabaseWrapper) -> list[tuple[str, float]]:
        """Return the notifications that have arrived, without waiting for more.

        Each is its payload, and the seconds since 1970 when the database sent it.
        """
        raise NotImplementedError

    def session(self, connection: BaseDatabaseWrapper) -> Session | None:
        """Return the session of a connection, or None if it is unknown, as behind a pooler."""
        return None

    #: The SQL condition that another transaction has been open since {}; it is false if the
    #: database does not show transactions.
    open_since = "1 = 0"

    def clock(self, connection: BaseDatabaseWrapper) -> datetime:
        """Return the time of the database, and not that at which the transaction began."""
        return cast("datetime", self.time(self.rows(connection, f"SELECT {self.now}", [])[0][0]))

    @abstractmethod
    def check(self, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
        """Return what is wrong with the version or the settings of the database (system checks)."""

    def notice_dead_server(self, connection: BaseDatabaseWrapper) -> None:  # noqa: B027  # by options
        """Let a new connection end soon after the machine of its server is off."""

    def descriptor(self, connection: BaseDatabaseWrapper) -> int | None:
        """Return the number of the socket of a connection, or None if there is none."""
        return None

    def is_waiting(self, connection: BaseDatabaseWrapper) -> bool | None:
        """Return whether a thread waits for the reply to a statement, or None if this is unknown.

        The connection may belong to another thread.
        """
        return None

    def is_free(self, connection: Any) -> bool:
        """Return whether a connection, of any thread, is made and has no transaction.

        While its thread connects, and at the end of a transaction, autocommit is off, and a
        statement would begin a transaction that nothing ends.
        """
        made = connection.connection is not None
        return made and connection.autocommit and not connection.in_atomic_block

    def session_number(self, connection: BaseDatabaseWrapper) -> int:
        """Return the server's number of a session of any thread, or 0 if it is closed."""
        return 0

    def executes(
        self, connection: BaseDatabaseWrapper, numbers: Collection[int]
    ) -> dict[int, bool] | None:
        """Return which of these sessions exist, and whether each executes a statement now.

        Return None if a pooler has the sessions. Only called if `is_server`.
        """
        raise NotImplementedError

    def client_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of the driver by which a worker notices that its server is gone.

        `options` are those of the project, which are not overridden.
        """
        return {}
