"""How full the bounded queues are, looked at by maintenance: nobody else waits for it."""

from functools import partial

from django_ojs.models import Queue
from django_ojs.operations.events import publish
from django_ojs.spec.events import EventType
from django_ojs.storage import bounds, database
from django_ojs.storage.queue_configs import config_of


def watch() -> int:
    """Look at each bounded queue once (backpressure §10.1): what was above its threshold may have
    cleared. Return how many were.
    """
    return sum(_look_at(queue) for queue in bounds.bounded()) if bounds.are_any() else 0


def mend() -> int:
    """Make bounds hold that are configured and that nobody looks at. Return how many there were."""
    forgotten = bounds.forgotten()
    for queue in forgotten:
        database.in_write_transaction(partial(bounds.rebound, queue))
    return len(forgotten)


def _look_at(queue: str) -> int:
    bound = config_of(queue).backpressure
    if not bounds.is_bounded(bound):
        return 0
    found = bounds.load(queue)
    warned = found.pressure(bound) >= bound.warning_threshold
    full = not found.with_(1, 0).fits(bound)
    if not warned:
        bounds.renew_tickets(queue)

    def operation() -> int:
        before = Queue.primary.filter(pk=queue).first()
        if before is None:
            return 0
        cleared = before.warned_at is not None and not warned
        bounds.note_pressure(queue, warned=warned, full=full)
        if cleared:
            depth, most = bounds.nearer(found, bound)
            publish.queue_event(EventType.BACKPRESSURE_CLEARED, queue, depth=depth, bound=most)
        return int(cleared)

    return database.in_write_transaction(operation)
