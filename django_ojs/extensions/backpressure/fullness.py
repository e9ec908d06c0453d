"""How full queues are, for operators."""

from collections.abc import Collection, Iterator

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.backpressure.operations import episodes
from django_ojs.extensions.backpressure.operations.episodes import Episode
from django_ojs.extensions.backpressure.storage import Load
from django_ojs.operations.queues.status import QueueStatus
from django_ojs.reports.queue_overview import Fullness, Level
from django_ojs.spec.queue_config import Backpressure


def of(statuses: Collection[QueueStatus], *, may_be_full: bool) -> Iterator[tuple[str, Fullness]]:
    """Yield the names of the bounded queues, and how full they are."""
    bounded = {
        status.name: status for status in statuses if bounds.is_bounded(status.config.backpressure)
    }
    open_episodes = episodes.of(bounded) if may_be_full and bounded else {}
    for name, status in bounded.items():
        bound = status.config.backpressure
        size = bounds.load(name).size if bound.max_size_bytes is not None else None
        yield name, fullness(status.depth, size, bound, open_episodes.get(name, episodes.NONE))


def fullness(depth: int, size: int | None, bound: Backpressure, episode: Episode) -> Fullness:
    """Return how full a queue is with these waiting jobs and bytes."""
    load = Load(jobs=depth, size=size or 0)
    pressure, (nearest, most) = load.pressure(bound), load.nearest(bound)
    level, since = Level.GOOD, None
    if pressure >= 1 or episode.full_at:
        level, since = Level.BAD, episode.full_at
    elif pressure >= bound.warning_threshold or episode.near_full_at:
        level, since = Level.FAIR, episode.near_full_at
    return Fullness(
        pressure=pressure, depth=nearest, most=most, size=size, level=level, since=since
    )
