"""The queues with their depth, pressure, rates and workers, for the overview of operators.

Of the jobs, it reads only the oldest available one of each queue.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from django_ojs.operations.queues.rows import rows
from django_ojs.operations.queues.status import QueueStatus
from django_ojs.operations.workers import registry as workers_known
from django_ojs.spec.queue_config import Backpressure
from django_ojs.spec.states import State
from django_ojs.storage import bounds
from django_ojs.storage.bounds import Load
from django_ojs.storage.figures import rollup_queries
from django_ojs.storage.figures.rollup_queries import Flow

#: Workers that are read to count the listeners of each queue.
MOST_WORKERS = 10_000

#: A queue that is not growing has rates that differ by some percent: jobs that are enqueued in one
#: minute finish in the next.
_NOISE = 1.05


class Level(StrEnum):
    """How full a bounded queue is."""

    GOOD = "good"
    #: Above its warning threshold.
    FAIR = "fair"
    #: Full.
    BAD = "bad"


@dataclass(frozen=True, kw_only=True, slots=True)
class OverviewRow:
    """One queue."""

    status: QueueStatus
    flow: Flow
    #: Running workers that fetch from it; None: unknown.
    listening: int | None = 0
    oldest: datetime | None = None
    warned_at: datetime | None = None
    full_at: datetime | None = None
    #: The waiting jobs in bytes; None: no bound needs it.
    size: int | None = None

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.status.name

    @property
    def bound(self) -> Backpressure:
        """Its bounds."""
        return self.status.config.backpressure

    @property
    def bounded(self) -> bool:
        """Whether it has a bound."""
        return bounds.is_bounded(self.bound)

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
        """Depth ÷ bound, of the bound that is nearer; None without one."""
        if not self.bounded:
            return None
        return Load(jobs=self.depth, size=self.size or 0).pressure(self.bound)

    @property
    def level(self) -> Level:
        """Whether it is full, or above its warning threshold."""
        pressure = self.pressure
        if pressure is None or pressure < self.bound.warning_threshold:
            return Level.GOOD
        return Level.BAD if pressure >= 1 else Level.FAIR

    @property
    def unworked(self) -> bool:
        """Whether jobs are available, and no worker fetches them."""
        return bool(
            self.available
            and not self.status.paused
            and self.listening == 0
            and not self.flow.went_per_minute
        )

    @property
    def growing(self) -> bool:
        """Whether more jobs are enqueued than finished, by more than the noise of the rates."""
        return self.flow.came_per_minute > self.flow.went_per_minute * _NOISE

    @property
    def drains_in(self) -> float | None:
        """Seconds until no job is available at the current rates; None: never."""
        net = self.flow.went_per_minute - self.flow.came_per_minute
        return self.available / net * 60 if net > 0 else None


@dataclass(kw_only=True, slots=True)
class Listeners:
    """The number of running workers of each queue."""

    by_queue: Counter[str] = field(default_factory=Counter)
    total: int = 0
    stale: int = 0


def listeners() -> Listeners:
    """Return the number of running workers of each queue; their heartbeats name the queues."""
    found = workers_known.listing(limit=MOST_WORKERS)
    result = Listeners(total=found.total, stale=found.stale)
    for each in found.workers:
        if each.condition == "running":
            result.by_queue.update(set(each.queues))
    return result


def overview(
    statuses: Collection[QueueStatus],
    *,
    flows: Mapping[str, Flow],
    oldest: Mapping[str, datetime],
    listens: Mapping[str, int] | None,
) -> list[OverviewRow]:
    """Return a row for each queue, highest pressure first, then the deepest.

    `listens` None: the listeners are unknown.
    """
    since = {
        name: (warned_at, full_at)
        for name, warned_at, full_at in rows()
        .filter(pk__in=[status.name for status in statuses])
        .values_list("name", "warned_at", "full_at")
    }
    found = []
    for status in statuses:
        warned_at, full_at = since.get(status.name, (None, None))
        by_size = status.config.backpressure.max_size_bytes is not None
        found.append(
            OverviewRow(
                status=status,
                flow=flows.get(status.name) or rollup_queries.nothing(),
                listening=None if listens is None else listens.get(status.name, 0),
                oldest=oldest.get(status.name),
                warned_at=warned_at,
                full_at=full_at,
                size=bounds.load(status.name).size if by_size else None,
            )
        )
    return sorted(found, key=_pressing)


def _pressing(row: OverviewRow) -> tuple[float, int, str]:
    return -(row.pressure or 0.0), -row.depth, row.name
