"""Pause and resume queues. A paused queue accepts jobs, and FETCH returns none of them."""

from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import Queue
from django_ojs.operations.access import audit_trail
from django_ojs.operations.events import publish
from django_ojs.operations.queues.rows import rows, touch
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.events import EventType
from django_ojs.storage import database, notify


def pause(name: str, *, by: str | None = None) -> Queue:
    """Pause a queue, known or not, and return it. `by` names the operator in the event.

    Pausing a paused queue keeps the time it was paused at.
    """
    check_queue(name, settings().limits)
    return _pause(name, by)


@database.write_transaction
def _pause(name: str, by: str | None) -> Queue:
    queue = touch(name)
    if rows().filter(pk=name, paused_at__isnull=True).update(paused_at=Now()):
        publish.queue_event(EventType.QUEUE_PAUSED, name, paused_by=by)
        audit_trail.record("queue.paused", name)
    queue.refresh_from_db()
    return queue


def resume(name: str, *, by: str | None = None) -> Queue:
    """Make FETCH return a queue's jobs again, and return the queue. `by` as in `pause`.

    Resuming a queue that is not paused changes nothing.
    """
    check_queue(name, settings().limits)
    queue = _resume(name, by)
    notify.workers_of([name])
    return queue


@database.write_transaction
def _resume(name: str, by: str | None) -> Queue:
    queue = touch(name)
    if rows().filter(pk=name, paused_at__isnull=False).update(paused_at=None):
        publish.queue_event(EventType.QUEUE_RESUMED, name, resumed_by=by)
        audit_trail.record("queue.resumed", name)
    queue.refresh_from_db()
    return queue
