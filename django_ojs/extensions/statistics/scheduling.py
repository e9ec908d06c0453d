"""How the queues, and the queues of each pool, are served (ojs-fair-scheduling §10.2).

The figures come from the rollups and the counts, so they do not slow claims: a run counts when it
ends.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django_ojs.conf import settings
from django_ojs.extensions.statistics import rollup_queries
from django_ojs.spec.scheduling import ALL, Pool
from django_ojs.spec.states import State
from django_ojs.storage.figures import counts

#: The length of the window, which ends now.
WINDOW: Final = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueFigures:
    """The runs of a queue that ended within the window, and their share of the runs of all queues.

    `wait_ms` is the mean time from available to started of the completed jobs; None without any.
    """

    queue: str
    runs: int
    ratio: float
    wait_ms: float | None
    active_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolShare:
    """The share of a queue in the runs of the queues of a pool.

    `planned` is the share that the strategy gives the queue while all queues of the pool have
    jobs; None for the strategy `strict`, which plans no shares, and for a pool with `*`.
    """

    queue: str
    weight: int
    planned: float | None
    ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduling:
    """The queues that have runs or active jobs or are in a pool, and the shares in each pool."""

    queues: list[QueueFigures]
    pools: dict[str, list[PoolShare]]


def scheduling(*, within: Collection[str] | None = None) -> Scheduling:
    """Return how the queues that the caller may use were served within the window."""
    recent = rollup_queries.last_minute_by_queue(within)
    active = {name: states.get(State.ACTIVE, 0) for name, states in counts.by_queue(within).items()}
    visible = {pool.name: _visible(pool, within) for pool in settings().pools}
    names = {name for name, number in active.items() if number}.union(recent, *visible.values())
    names.discard(ALL)
    total = sum(figures.runs for figures in recent.values())
    queues = []
    for name in sorted(names):
        figures = recent.get(name, rollup_queries.LastMinute())
        queues.append(
            QueueFigures(
                queue=name,
                runs=round(figures.runs),
                ratio=_ratio(figures.runs, total),
                wait_ms=rollup_queries.mean(figures.waited),
                active_jobs=active.get(name, 0),
            )
        )
    runs = {name: figures.runs for name, figures in recent.items()}
    return Scheduling(
        queues=queues,
        pools={
            pool.name: _shares(pool, visible[pool.name], runs)
            for pool in settings().pools
            if visible[pool.name]
        },
    )


def _shares(pool: Pool, visible: Collection[str], runs: dict[str, float]) -> list[PoolShare]:
    names = [name for name in pool.queues if name != ALL]
    total = sum(runs.get(name, 0) for name in names)
    # With `*`, each share depends on how many other queues there are.
    planned = pool.order.ratios(names) if ALL not in pool.queues and names else {}
    return [
        PoolShare(
            queue=name,
            weight=pool.order.weight_of(name),
            planned=planned.get(name),
            ratio=_ratio(runs.get(name, 0), total),
        )
        for name in names
        if name in visible
    ]


def _ratio(part: float, total: float) -> float:
    return round(part / total, 4) if total else 0.0


def _visible(pool: Pool, within: Collection[str] | None) -> list[str]:
    return [name for name in pool.queues if within is None or name in within]
