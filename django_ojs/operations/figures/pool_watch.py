"""Queues of a pool that are not served, and pools without a free worker (ojs-fair-scheduling §11).

Looked for again and again by maintenance, from counts and rollups, so that a claim costs nothing
more for it. Without `POOLS` it does nothing.
"""

from collections.abc import Collection, Iterator
from datetime import timedelta
from time import monotonic
from typing import Final

from django.db.models import Sum
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.models import Queue, Worker
from django_ojs.operations.events import publish
from django_ojs.operations.figures.scheduling import WINDOW
from django_ojs.operations.workers import registry
from django_ojs.spec.events import EventType, NewEvent
from django_ojs.spec.queue_config import DEFAULT_POLICY
from django_ojs.spec.scheduling import ALL, Pool, StarvationPrevention
from django_ojs.spec.states import State
from django_ojs.spec.times import format_duration
from django_ojs.storage import database
from django_ojs.storage.dialects.base import ALL_QUEUES
from django_ojs.storage.figures import counts, rollup_queries
from django_ojs.storage.figures.counts import ByState
from django_ojs.storage.figures.oldest_available import oldest

#: Seconds without a finding after which it is told again.
QUIET: Final = 60.0
_SECOND: Final = timedelta(seconds=1)


def utilization() -> dict[str, tuple[int, int]]:
    """Return the jobs in flight and the places of each pool that has workers."""
    members: dict[str, list[str]] = {}
    for name, worker_id in registry.pool_members():
        members.setdefault(name, []).append(worker_id)
    found = {}
    for pool in settings().pools:
        ids = members.get(pool.name, [])
        places = Worker.primary.filter(pk__in=ids).aggregate(sum=Sum("concurrency"))["sum"] or 0
        if pool.concurrency is not None:
            places = min(places or pool.concurrency, pool.concurrency)
        if ids and places:
            found[pool.name] = (sum(registry.held(ids).values()), places)
    return found


class PoolWatch:
    """Publishes an event when a queue or a pool is found so, and again after it was not for a
    minute: one that changes from look to look is not an event each time.
    """

    def __init__(self) -> None:
        #: When each was found last, by the monotonic clock.
        self._told: dict[tuple[EventType, str], float] = {}

    def check(self) -> int:
        """Look at the pools. Return how many events were published."""
        types = (EventType.SCHEDULING_QUEUE_STARVED, EventType.SCHEDULING_POOL_OVERLOADED)
        if not settings().pools or not publish.is_recorded(*types):
            return 0
        used = utilization()
        pools = [pool for pool in settings().pools if pool.name in used]
        numbers = counts.by_queue() if pools else {}
        found = [*_overloaded(pools, used, numbers), *_starved(pools, numbers)]
        now = monotonic()
        self._told = {key: last for key, last in self._told.items() if now - last < QUIET}
        new = [event for event in found if (event.type, event.subject) not in self._told]
        if new:
            with database.atomic():
                publish.record(new)
        self._told |= {(event.type, event.subject): now for event in found}
        return len(new)


def _overloaded(
    pools: Collection[Pool], used: dict[str, tuple[int, int]], numbers: dict[str, ByState]
) -> Iterator[NewEvent]:
    for pool in pools:
        active, places = used[pool.name]
        waiting = sum(
            states.get(State.AVAILABLE, 0) for queue, states in numbers.items() if pool.takes(queue)
        )
        if active >= places and waiting:
            data = {"pool": pool.name, "active_jobs": active, "waiting_jobs": waiting}
            yield NewEvent(type=EventType.SCHEDULING_POOL_OVERLOADED, subject=pool.name, data=data)


def _starved(pools: Collection[Pool], numbers: dict[str, ByState]) -> Iterator[NewEvent]:
    """Yield an event for each queue with jobs of which none was claimed for the interval.

    That none is running and none has ended within the last minute says so, where the oldest has
    waited for longer.
    """
    intervals: dict[str, timedelta] = {}
    for pool in pools:
        prevention = pool.order.prevention or StarvationPrevention()
        for queue in pool.queues:
            intervals[queue] = max(prevention.rotation_interval, WINDOW)
    idle = [
        queue
        for queue in intervals
        if queue != ALL
        and numbers.get(queue, {}).get(State.AVAILABLE)
        and not numbers[queue].get(State.ACTIVE)
    ]
    if not idle:
        return
    stopped = Queue.primary.filter(
        name__in=[*idle, ALL_QUEUES, DEFAULT_POLICY], paused_at__isnull=False
    )
    paused = set(stopped.values_list("name", flat=True))
    if not paused.isdisjoint((ALL_QUEUES, DEFAULT_POLICY)):
        return
    served = rollup_queries.last_minute_by_queue(idle)
    now = timezone.now()
    for queue, since in oldest(idle).items():
        waited = now - since
        if queue in paused or queue in served or waited <= intervals[queue]:
            continue
        data = {
            "duration": format_duration(waited // _SECOND * _SECOND),
            "available_count": numbers[queue][State.AVAILABLE],
        }
        yield NewEvent(
            type=EventType.SCHEDULING_QUEUE_STARVED,
            subject=queue,
            queue=queue,
            data={"queue": queue, **data},
        )
