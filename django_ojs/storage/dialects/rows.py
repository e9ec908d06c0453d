"""The rows and values that the statements of a dialect take and return."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol
from uuid import UUID

from django_ojs.spec.isolation import Isolation


class RowKind(Protocol):
    """A row of a statement that has no parts, and whose values need no conversion."""

    #: The name of the statement's file.
    statement: ClassVar[str]

    def __init__(self, *values: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Difference:
    """A wrong count: its jobs and bytes as counted, and as they are."""

    statement: ClassVar = "count_differences"

    queue: str
    state: str
    counted: int
    actual: int
    counted_bytes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class DueQueue:
    """A queue with scheduled or retryable jobs, and whether one of them is due."""

    statement: ClassVar = "due_queues"

    queue: str
    is_due: bool


#: The largest integer of the databases, which stands for no limit of bytes.
ANY_SIZE: Final = 2**63 - 1

#: The bits of all rules of claims.
ALL_RULES: Final = -1

#: The shortest lease of a worker of django_ojs, whatever the job says: the worker extends its
#: leases by statements, each of which may take a second on a busy machine.
SHORTEST_LEASE_MS: Final = 2000


@dataclass(frozen=True, order=True, slots=True)
class Named:
    """A trigger, a function, a procedure or an index on the table of jobs."""

    statement: ClassVar = "named_objects"

    kind: str
    name: str
    #: The table of a trigger or an index.
    table: str
    #: Whether it is a trigger that does not fire.
    is_disabled: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.kind.lower()} {self.name}" + (f" of {self.table}" if self.table else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimRequest:
    """Which jobs a claim takes from a queue, and for whom."""

    queue: str
    #: At most this many jobs are claimed.
    limit: int
    worker_id: str | None
    lease_ms: int
    #: Whether a job's own visibility timeout takes precedence over `lease_ms`.
    own_lease: bool = True
    isolation: Isolation = Isolation.ANY
    #: The most bytes that the jobs may have together.
    max_bytes: int = ANY_SIZE
    #: Whether the best job may be larger than `max_bytes`.
    at_least_one: bool = True
    #: Whether jobs are claimed only while the worker has its row, which cannot be removed before
    #: the claim is committed. Leases then last at least two seconds.
    registered: bool = False
    #: The rules of the queue that the caller applies, by their bits. If the queue has others, no
    #: job is claimed.
    applied: int = 0

    @property
    def shortest_ms(self) -> int:
        """The shortest lease, whatever the job says."""
        return SHORTEST_LEASE_MS if self.registered else 0


@dataclass(frozen=True, slots=True)
class Floor:
    """Where a claim starts in the order of a queue (see `storage.claim_floors`).

    The claim takes jobs of higher priorities only if they became available after `since`.
    """

    priority: int
    enqueued_at: datetime
    since: datetime


@dataclass(frozen=True, slots=True)
class Candidate:
    """An available job of a queue that has rules."""

    id: UUID
    size: int
    #: The claims to which it is open (see `spec.hold`).
    hold: int
