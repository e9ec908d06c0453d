"""The queues with their depth, pressure, rates and workers, for the overview of operators.

It reads no jobs, except some to find claims without the id of a worker.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models.functions import Now

from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.operations.queues.status import QueueStatus
from django_ojs.operations.workers import registry as workers_known
from django_ojs.spec.queue_config import Backpressure
from django_ojs.spec.scheduling import ALL
from django_ojs.spec.states import State
from django_ojs.storage import database, raw_queries

#: The most workers that are read to count the listeners of each queue.
MOST_WORKERS = 10_000

#: How many jobs are read to find claims without the id of a worker, and how old they may be.
MOST_JOBS = 1_000
LATELY = timedelta(seconds=15)

#: A flow has this many minutes, and its rates are means over the last five whole ones.
FLOW_MINUTES = 60
RATE_MINUTES = 5


class Level(StrEnum):
    """How full a bounded queue is."""

    GOOD = "good"
    #: Above its warning threshold.
    FAIR = "fair"
    #: Full.
    BAD = "bad"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fullness:
    """How full a bounded queue is, as an extension reports it (`Extension.fullness`)."""

    #: The larger quotient of depth and bound. `depth` and `most` are both in jobs or in bytes.
    pressure: float
    depth: int
    most: int
    #: The size of the waiting jobs in bytes; None if no bound needs it.
    size: int | None
    #: BAD if it is full, FAIR if it is above its warning threshold, or was lately.
    level: Level
    #: Since when it has been full or nearly full, as `level` says.
    since: datetime | None


def _minutes() -> list[int]:
    return [0] * FLOW_MINUTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """A queue's figures by minute, oldest first; the last minute is the current one.

    An extension reports them (`Extension.flows`). `came`: jobs enqueued; `went`: jobs completed or
    discarded; `rejected` and `dropped`: jobs that a full queue rejected or dropped.
    """

    came: list[int] = field(default_factory=_minutes)
    went: list[int] = field(default_factory=_minutes)
    rejected: list[int] = field(default_factory=_minutes)
    dropped: list[int] = field(default_factory=_minutes)

    @property
    def came_per_minute(self) -> float:
        """Jobs enqueued per minute, over the last whole minutes."""
        return _rate(self.came)

    @property
    def rejected_per_minute(self) -> float:
        """Jobs rejected per minute, over the last whole minutes."""
        return _rate(self.rejected)

    @property
    def went_per_minute(self) -> float:
        """Jobs finished per minute, over the last whole minutes."""
        return _rate(self.went)

    def lately(self, minutes: int) -> "Flow":
        """Return the flow of the last minutes."""
        return Flow(
            came=self.came[-minutes:],
            went=self.went[-minutes:],
            rejected=self.rejected[-minutes:],
            dropped=self.dropped[-minutes:],
        )


def _rate(minutes: list[int]) -> float:
    # The current minute is left out, because its sums are not complete.
    return sum(minutes[-1 - RATE_MINUTES : -1]) / RATE_MINUTES


@dataclass(frozen=True, kw_only=True, slots=True)
class OverviewRow:
    """One queue."""

    status: QueueStatus
    flow: Flow
    #: Whether `flow` was read; if not, it is empty.
    is_flow_known: bool = True
    #: How many running workers fetch from it; None if unknown.
    listening: int | None = 0
    oldest: datetime | None = None
    #: How full it is; None without a bound.
    fullness: Fullness | None = None

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.status.name

    @property
    def bound(self) -> Backpressure:
        """Its bounds."""
        return self.status.config.backpressure

    @property
    def depth(self) -> int:
        """How many jobs wait."""
        return self.status.depth

    @property
    def available(self) -> int:
        """The number of available jobs."""
        return self.status.counts.get(State.AVAILABLE, 0)

    @property
    def pressure(self) -> float | None:
        """The larger quotient of depth and bound; None without a bound."""
        return self.fullness.pressure if self.fullness else None

    @property
    def unworked(self) -> bool:
        """Whether jobs are available, but no worker fetches them."""
        return bool(self.available and not self.status.paused and self.listening == 0)

    @property
    def rejected_last_hour(self) -> int:
        """The number of jobs that it rejected because it was full."""
        return sum(self.flow.rejected)

    @property
    def dropped_last_hour(self) -> int:
        """The number of jobs that it dropped for new ones."""
        return sum(self.flow.dropped)


@dataclass(kw_only=True, slots=True)
class Listeners:
    """The number of running workers of each queue.

    `running` counts the workers that fetch jobs, and `maintaining` those that do maintenance.
    `slots` and `busy` are how many jobs all workers that are not stale can run, and do run.
    """

    by_queue: Counter[str] = field(default_factory=Counter)
    #: The slots of the running workers of each queue. Queues may share slots.
    slots_of: Counter[str] = field(default_factory=Counter)
    total: int = 0
    stale: int = 0
    running: int = 0
    maintaining: int = 0
    slots: int = 0
    busy: int = 0


def listeners(statuses: Collection[QueueStatus] = (), *, may_be_nameless: bool = True) -> Listeners:
    """Return the number of running workers of each queue, from the queues in their heartbeats.

    A queue of `statuses` whose jobs are claimed without the id of a worker counts at least one.
    `may_be_nameless` is False if there are no such claims.
    """
    found = workers_known.listing(limit=MOST_WORKERS)
    result = Listeners(total=found.total, stale=found.stale)
    names = {status.name for status in statuses}
    for each in found.workers:
        if each.condition == workers_known.STALE:
            continue
        result.maintaining += not each.worker.owner
        result.slots += each.worker.concurrency or each.active_jobs
        result.busy += each.active_jobs
        if each.condition == "running":
            result.running += 1
            named = {*each.queues, *(names if ALL in each.queues else ())}
            taken = [name for name in named if workers_known.takes(each.worker, name)]
            result.by_queue.update(taken)
            result.slots_of.update(dict.fromkeys(taken, each.worker.concurrency or 0))
    waiting = {status.name for status in statuses if status.counts.get(State.AVAILABLE)}
    if may_be_nameless and (without := waiting - result.by_queue.keys()):
        result.by_queue.update(without & _claimed_without_worker())
    return result


def is_worked(queue: str) -> bool:
    """Return whether any worker takes jobs from a queue."""
    workers = workers_known.listing(limit=MOST_WORKERS).workers
    return (
        any(
            each.condition == "running" and workers_known.takes(each.worker, queue)
            for each in workers
        )
        or queue in _claimed_without_worker()
    )


def nameless_condition() -> str:
    """Return the SQL condition under which `_claimed_without_worker` may find a queue."""
    running = raw_queries.condition(Job, "state = 'active' AND worker_id IS NULL")
    newest = (
        f"SELECT worker_id FROM {Job._meta.db_table} WHERE state = 'completed' "
        f"AND NOT dead_letter AND finished_at > {database.dialect().ago(LATELY.total_seconds())} "
        f"ORDER BY finished_at DESC, id DESC LIMIT {MOST_JOBS}"
    )
    ended = f"EXISTS (SELECT 1 FROM ({newest}) AS newest WHERE worker_id IS NULL)"
    return f"({running} OR {ended})"


def _claimed_without_worker() -> set[str]:
    """Return the queues of jobs that run, or ended lately, and were claimed without a worker id.

    A client over HTTP need not send one, so only these jobs show that a worker exists.
    """
    anonymous = Job.primary.filter(worker_id=None)
    running = anonymous.filter(state=State.ACTIVE).values_list("queue", flat=True)
    newest = (
        Job.primary.filter(state=State.COMPLETED, dead_letter=False, finished_at__gt=Now() - LATELY)
        .order_by("-finished_at", "-pk")
        .values_list("queue", "worker_id")[:MOST_JOBS]
    )
    ended = {queue for queue, worker_id in newest if worker_id is None}
    return {*running.distinct()[:MOST_JOBS], *ended}


def flows(queues: Collection[str]) -> dict[str, Flow]:
    """Return the flows of these queues, if an extension reports them."""
    return dict(registry.brought("flows", queues))


def overview(
    statuses: Collection[QueueStatus],
    *,
    flows: Mapping[str, Flow] | None,
    oldest: Mapping[str, datetime],
    listens: Mapping[str, int] | None,
    may_be_full: bool = True,
) -> list[OverviewRow]:
    """Return a row for each queue, highest pressure first, then the deepest.

    `flows` is None if the rates are unknown, and `listens` if the listeners are. `may_be_full` is
    False if no queue was full or nearly full lately.
    """
    fullness = dict(registry.brought("fullness", statuses, may_be_full))
    rows = [
        OverviewRow(
            status=status,
            flow=(flows or {}).get(status.name) or Flow(),
            is_flow_known=status.name in (flows or {}),
            listening=None if listens is None else listens.get(status.name, 0),
            oldest=oldest.get(status.name),
            fullness=fullness.get(status.name),
        )
        for status in statuses
    ]
    return sorted(rows, key=_pressing)


def _pressing(row: OverviewRow) -> tuple[float, int, str]:
    return -(row.pressure or 0.0), -row.depth, row.name
