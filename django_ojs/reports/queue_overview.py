"""The queues with their depth, pressure, rates and workers, for the overview of operators.

Of the jobs, it reads only the oldest available one of each queue.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models.functions import Now

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.operations import episodes
from django_ojs.extensions.backpressure.operations.episodes import NONE as NO_EPISODE
from django_ojs.extensions.backpressure.operations.episodes import Episode
from django_ojs.extensions.backpressure.storage import Load
from django_ojs.extensions.statistics import rollup_queries
from django_ojs.extensions.statistics.rollup_queries import Flow
from django_ojs.models import Job
from django_ojs.operations.queues.status import QueueStatus
from django_ojs.operations.workers import registry as workers_known
from django_ojs.spec.queue_config import Backpressure
from django_ojs.spec.scheduling import ALL
from django_ojs.spec.states import State

#: Workers that are read to count the listeners of each queue.
MOST_WORKERS = 10_000

#: Jobs that are read to find claims without the id of a worker, and how old these may be.
MOST_JOBS = 1_000
LATELY = timedelta(seconds=15)

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
    #: Whether `flow` was read; else it has no activity.
    is_flow_known: bool = True
    #: Running workers that fetch from it; None: unknown.
    listening: int | None = 0
    oldest: datetime | None = None
    #: Since when it has been full or nearly full, with hysteresis.
    episode: Episode = NO_EPISODE
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
    def has_room(self) -> bool:
        """Whether it is below its bound now, also while `level` says that it is full."""
        return self.pressure is None or self.pressure < 1

    @property
    def level(self) -> Level:
        """Whether it is full, or above its warning threshold, or was a minute ago."""
        pressure = self.pressure
        if pressure is None:
            return Level.GOOD
        if pressure >= 1 or self.episode.full_at:
            return Level.BAD
        is_near = pressure >= self.bound.warning_threshold or self.episode.near_full_at
        return Level.FAIR if is_near else Level.GOOD

    @property
    def level_since(self) -> datetime | None:
        """Return since when it is full or nearly full, as `level` says."""
        return self.episode.full_at if self.level is Level.BAD else self.episode.near_full_at

    @property
    def unworked(self) -> bool:
        """Whether jobs are available, and no worker fetches them."""
        return bool(self.available and not self.status.paused and self.listening == 0)

    @property
    def rejected_last_hour(self) -> int:
        """The number of jobs that it rejected because it was full."""
        return sum(self.flow.rejected)

    @property
    def dropped_last_hour(self) -> int:
        """The number of jobs that it dropped for new ones."""
        return sum(self.flow.dropped)

    @property
    def growing(self) -> bool:
        """Whether more jobs come than are finished, by more than the noise of the rates.

        Those that a full queue rejects come too.
        """
        return self._comes > self.flow.went_per_minute * _NOISE

    @property
    def _comes(self) -> float:
        return self.flow.came_per_minute + self.flow.rejected_per_minute

    @property
    def drains_in(self) -> float | None:
        """Seconds until no job is available at the current rates; None: never, or not soon.

        A difference of the rates that may be noise empties no queue.
        """
        went = self.flow.went_per_minute
        return self.available / (went - self._comes) * 60 if went > self._comes * _NOISE else None


@dataclass(kw_only=True, slots=True)
class Listeners:
    """The number of running workers of each queue.

    `running` counts those that fetch jobs, `maintaining` those that also do the maintenance, and
    `slots` and `busy` what all workers that are not stale can run and run at the same time.
    """

    by_queue: Counter[str] = field(default_factory=Counter)
    #: The slots of the running workers of each queue, which other queues may have in common.
    slots_of: Counter[str] = field(default_factory=Counter)
    total: int = 0
    stale: int = 0
    running: int = 0
    maintaining: int = 0
    slots: int = 0
    busy: int = 0


def listeners(statuses: Collection[QueueStatus] = ()) -> Listeners:
    """Return the number of running workers of each queue; their heartbeats name the queues.

    A queue of `statuses` of which jobs are claimed without the id of a worker has at least one.
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
    if without := waiting - result.by_queue.keys():
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


def _claimed_without_worker() -> set[str]:
    """Return the queues of jobs that run, or ended lately, and were claimed without a worker id.

    A client over HTTP need not send one; these jobs are the only sign of it.
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


def overview(
    statuses: Collection[QueueStatus],
    *,
    flows: Mapping[str, Flow] | None,
    oldest: Mapping[str, datetime],
    listens: Mapping[str, int] | None,
    with_episodes: bool = True,
) -> list[OverviewRow]:
    """Return a row for each queue, highest pressure first, then the deepest.

    `flows` None: the rates are unknown. `listens` None: the listeners are unknown.
    """
    open_episodes = episodes.of([each.name for each in statuses]) if with_episodes else {}
    found = []
    for status in statuses:
        by_size = status.config.backpressure.max_size_bytes is not None
        found.append(
            OverviewRow(
                status=status,
                flow=(flows or {}).get(status.name) or rollup_queries.nothing(),
                is_flow_known=flows is not None,
                listening=None if listens is None else listens.get(status.name, 0),
                oldest=oldest.get(status.name),
                episode=open_episodes.get(status.name, NO_EPISODE),
                size=bounds.load(status.name).size if by_size else None,
            )
        )
    return sorted(found, key=_pressing)


def _pressing(row: OverviewRow) -> tuple[float, int, str]:
    return -(row.pressure or 0.0), -row.depth, row.name
