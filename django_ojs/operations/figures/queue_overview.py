"""The queues as an operator looks at them: how full, how fast, since when. Reads no jobs but the
oldest of each queue.
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

#: Workers that are looked at for who listens where.
MOST_WORKERS = 10_000

#: Jobs that came in one minute and went in the next make rates differ by some percent.
_NOISE = 1.05


class Level(StrEnum):
    """How full a bounded queue is."""

    GOOD = "good"
    #: Above its warning threshold.
    FAIR = "fair"
    #: Full.
    BAD = "bad"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One queue."""

    status: QueueStatus
    flow: Flow
    #: Running workers that take its jobs; None: it is not known.
    listening: int | None = 0
    oldest: datetime | None = None
    warned_at: datetime | None = None
    full_at: datetime | None = None
    #: What waits, in bytes; None: no bound asks for it.
    size: int | None = None

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.status.name

    @property
    def bound(self) -> Backpressure:
        """What bounds it."""
        return self.status.config.backpressure

    @property
    def bounded(self) -> bool:
        """Whether anything does."""
        return bounds.is_bounded(self.bound)

    @property
    def depth(self) -> int:
        """How many jobs wait."""
        return self.status.depth

    @property
    def available(self) -> int:
        """How many jobs could be worked now."""
        return self.status.counts.get(State.AVAILABLE, 0)

    @property
    def pressure(self) -> float | None:
        """Depth ÷ bound, of the bound that is nearer; None without one."""
        if not self.bounded:
            return None
        return Load(jobs=self.depth, size=self.size or 0).pressure(self.bound)

    @property
    def level(self) -> Level:
        """Whether it is full, or about to be."""
        pressure = self.pressure
        if pressure is None or pressure < self.bound.warning_threshold:
            return Level.GOOD
        return Level.BAD if pressure >= 1 else Level.FAIR

    @property
    def unworked(self) -> bool:
        """Whether jobs could be worked, and nobody does."""
        return bool(
            self.available
            and not self.status.paused
            and self.listening == 0
            and not self.flow.went_per_minute
        )

    @property
    def growing(self) -> bool:
        """Whether more comes than goes, by more than such figures are off anyway."""
        return self.flow.came_per_minute > self.flow.went_per_minute * _NOISE

    @property
    def drains_in(self) -> float | None:
        """Seconds until nothing is left that could be worked; None: not as things are."""
        net = self.flow.went_per_minute - self.flow.came_per_minute
        return self.available / net * 60 if net > 0 else None


@dataclass(kw_only=True, slots=True)
class Listeners:
    """How many living workers take jobs of each queue."""

    by_queue: Counter[str] = field(default_factory=Counter)
    total: int = 0
    stale: int = 0


def listeners() -> Listeners:
    """Return who listens where: workers that run, as far as they are known by their beats."""
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
) -> list[Row]:
    """Return a row for each queue, those nearest to their bounds first, then the deepest.

    `listens` None: who listens is not known.
    """
    since = {
        name: (warned_at, full_at)
        for name, warned_at, full_at in rows().values_list("name", "warned_at", "full_at")
    }
    found = []
    for status in statuses:
        warned_at, full_at = since.get(status.name, (None, None))
        by_size = status.config.backpressure.max_size_bytes is not None
        found.append(
            Row(
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


def _pressing(row: Row) -> tuple[float, int, str]:
    return -(row.pressure or 0.0), -row.depth, row.name


__all__ = ["Level", "Listeners", "Row", "listeners", "overview"]
