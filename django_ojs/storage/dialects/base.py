"""What a database must be able to do for the hot paths: store, claim, complete, promote.

One statement each.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec.states import State, Trigger, sources

#: What FETCH hands out, in this order (see `storage.claims.Claimed`).
CLAIMED = (
    "id",
    "type",
    "queue",
    "priority",
    "args",
    "meta",
    "options",
    "attempt",
    "max_attempts",
    "returned",
    "run",
    "timeout_ms",
    "visibility_timeout_ms",
    "created_at",
    "enqueued_at",
    "due_at",
    "expires_at",
    "activated_at",
    "started_at",
    "lease_until",
    "worker_id",
    "error",
    "progress",
)


#: No queue can have this name; its row in `ojs_queue` stands for all of them. While it is paused,
#: nothing is handed out and nothing promoted (see `operations.maintenance.mode`).
ALL_QUEUES = "*"


@dataclass(frozen=True, slots=True)
class Move:
    """A trigger and the state it leads to, as SQL.

    The states come from the transition table and from nowhere else.
    """

    trigger: Trigger
    target: State

    @property
    def to(self) -> str:
        """The new state, quoted."""
        return f"'{self.target.value}'"

    @property
    def expected(self) -> str:
        """The condition on the old state.

        Written so that the planner sees that a partial index covers it.
        """
        states = sources(self.trigger, self.target)
        if len(states) == 1:
            return f"state = '{states[0].value}'"
        return "state IN ({})".format(", ".join(f"'{state.value}'" for state in states))


#: A count that is wrong: queue, state, jobs as counted and as they are, bytes likewise.
Difference = tuple[str, str, int, int, int, int]

#: A database session: the server's process id, and when it started.
Session = tuple[int, datetime]

#: A job to store: columns by name, JSON as Python values; `due_in` and `expires_in` in seconds from
#: now.
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database decided about a job that PUSH stored."""

    id: UUID
    state: str
    created_at: datetime
    enqueued_at: datetime | None
    due_at: datetime | None
    expires_at: datetime | None
    size_bytes: int


class Dialect(ABC):
    """The statements of one database."""

    #: The time at which a statement began, in a statement that has parameters.
    now: ClassVar[str]
    #: Can a session be told of new work, so that idle workers need not wait for their next poll?
    can_notify: ClassVar[bool]
    #: Has every connection a server process that other sessions can see is gone?
    has_sessions: ClassVar[bool]

    @abstractmethod
    def insert(
        self, connection: BaseDatabaseWrapper, rows: Sequence[Row], *, new: bool, admit: bool
    ) -> list[Stored] | None:
        """Store jobs, in order; skip any whose id is taken. Return the stored ones.

        `new`: the ids are ours, and none is taken. `admit`: only if it costs no look to say that
        their queues have room; None says that it does, and that nothing was stored (or that the id
        of a single job is taken).
        """

    @abstractmethod
    def oldest(self, connection: BaseDatabaseWrapper, queue: str, most: int) -> list[UUID]:
        """Return up to `most` available jobs of a queue, the oldest ones, locked."""

    @abstractmethod
    def take_turn(self, connection: BaseDatabaseWrapper, queue: str, seconds: float) -> str | None:
        """Keep all others from adding to a queue until the transaction ends.

        Waits for those who have added to it and not committed; OperationalError when that takes
        longer than `seconds`, or when they wait for us. Return the version of the bound as it is
        then; None when the transaction sees only what was committed before it began.
        """

    @abstractmethod
    def renew(self, connection: BaseDatabaseWrapper, queue: str) -> None:
        """Give out new tickets of a queue that has none left and room."""

    @abstractmethod
    def depth(
        self, connection: BaseDatabaseWrapper, queue: str, states: Sequence[str]
    ) -> list[tuple[str, int, int]]:
        """Return (state, jobs, bytes) of a queue in these states, all of one moment."""

    @abstractmethod
    def spend(
        self, connection: BaseDatabaseWrapper, queue: str, version: str, cost: int, room: int
    ) -> None:
        """Note that a turn added `cost` tickets' worth, and left room for so many more.

        Nothing is noted when the bound is of another version by now.
        """

    @abstractmethod
    def claim(
        self,
        connection: BaseDatabaseWrapper,
        *,
        queue: str,
        count: int,
        worker_id: str | None,
        lease_ms: int,
        own: bool,
    ) -> list[tuple[Any, ...]]:
        """Claim up to `count` available jobs of one queue.

        `own`: a job's own visibility timeout goes before `lease_ms`.

        Return rows of `CLAIMED`, in no particular order.
        """

    @abstractmethod
    def complete(self, connection: BaseDatabaseWrapper, worker_id: str, finished: str) -> set[UUID]:
        """ACK many jobs of one worker, given as a JSON array of `{id, run, result}`.

        Return those it still held.
        """

    @abstractmethod
    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> list[tuple[UUID, str]]:
        """Make due jobs available, earliest first. Return (id, queue) of each."""

    @abstractmethod
    def counts(
        self, connection: BaseDatabaseWrapper, queues: list[str] | None
    ) -> list[tuple[str, str, int]]:
        """Return (queue, state, number) for these queues, or for all."""

    @abstractmethod
    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        """Fold what changed into the counts. Return how many changes there were."""

    @abstractmethod
    def count_differences(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        """Return (queue, state, counted, actual) where the counts are wrong, at one moment."""

    @abstractmethod
    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        """Correct the counts, and return what was wrong."""

    def tidy(self, connection: BaseDatabaseWrapper) -> None:  # noqa: B027  # most have nothing to do
        """Give back the space of rows that are written and deleted all the time."""

    @abstractmethod
    def begin_write(self, connection: BaseDatabaseWrapper) -> None:
        """Take the write lock at the start of a transaction, where the database has just one."""

    @abstractmethod
    def lock_keys(self, connection: BaseDatabaseWrapper, keys: Sequence[str]) -> bool:
        """Wait for the unique keys, given in hexadecimal, and hold them until the transaction ends.

        Return whether the transaction sees what was committed while it waited.
        """

    @abstractmethod
    def take_turns(self, connection: BaseDatabaseWrapper, what: str) -> None:
        """Wait until no other transaction is at this, and keep others out until this one ends."""

    @abstractmethod
    def add_events(self, connection: BaseDatabaseWrapper, events: str) -> None:
        """Store events, given as a JSON array of `{event_id, type, subject, queue, data}`."""

    @abstractmethod
    def can_write(self, connection: BaseDatabaseWrapper) -> bool:
        """Say whether the session may write. A replica's may not."""

    @abstractmethod
    def lost_a_race(self, error: OperationalError) -> bool:
        """Say whether the statement failed only because others were at work.

        That is a deadlock, a lock wait or a busy database.
        """

    @abstractmethod
    def uuid(self, value: Any) -> UUID:
        """Convert an id of a raw row."""

    @abstractmethod
    def time(self, value: Any) -> datetime | None:
        """Convert a timestamp of a raw row."""

    @abstractmethod
    def notify(self, connection: BaseDatabaseWrapper, queues: Sequence[str]) -> None:
        """Tell listening workers that these queues have work, outside the caller's transaction.

        Where `can_notify` is false it does nothing.
        """

    def session(self, connection: BaseDatabaseWrapper) -> tuple[int, datetime] | None:
        """Identify the server process of a connection, when that has one to itself."""
        return None

    @abstractmethod
    def waiting(self, connection: BaseDatabaseWrapper) -> tuple[bool, bool]:
        """Say whether a scheduled or retryable job is due, and whether a waiting one expired."""

    @abstractmethod
    def dead_workers(self, connection: BaseDatabaseWrapper) -> list[tuple[str, Session | None]]:
        """Return registered workers that are dead.

        Without a session: it kept silent for longer than it may. With the session it had: the
        server knows that no more.
        """
