"""Check the pressure of the bounded queues, as a step of maintenance."""

from functools import partial

from django_ojs.models import Queue
from django_ojs.operations.events import publish
from django_ojs.spec.events import EventType
from django_ojs.storage import bounds, database
from django_ojs.storage.queue_configs import config_of


def check_all() -> int:
    """Check each bounded queue once (backpressure §10.1), and return how many cleared."""
    return sum(_check(queue) for queue in bounds.bounded()) if bounds.are_any() else 0


def restore_bounds() -> int:
    """Write the bounds that are configured and have no row. Return how many there were."""
    missing = bounds.missing()
    for queue in missing:
        database.in_write_transaction(partial(bounds.rebound, queue))
    return len(missing)


def _check(queue: str) -> int:
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
            depth, most = found.nearest(bound)
            publish.queue_event(EventType.BACKPRESSURE_CLEARED, queue, depth=depth, bound=most)
        return int(cleared)

    return database.in_write_transaction(operation)
