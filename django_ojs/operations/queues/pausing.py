"""Pause, drain and resume queues.

A paused queue accepts jobs, and FETCH returns none of them. A draining queue accepts none, and
workers finish those that are in it.
"""

from typing import Any

from django.db.models import Q
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.hooks import publish
from django_ojs.models import Queue
from django_ojs.operations.access import operator
from django_ojs.operations.queues.rows import rows, touch
from django_ojs.operations.queues.status import QueueState
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.published import EventType, of_queue
from django_ojs.storage import database, notify, queue_configs


def pause(name: str, *, by: str | None = None) -> Queue:
    """Pause a queue, known or not, and return it. `by` names the operator in the event.

    Pausing a paused queue keeps the time it was paused at.
    """
    check_queue(name, settings().limits)
    return _pause(name, by)


@database.write_transaction
def _pause(name: str, by: str | None) -> Queue:
    queue = touch(name)
    before = _shown(queue)
    updated = rows().filter(pk=name, paused_at__isnull=True).update(paused_at=Now())
    queue.refresh_from_db()
    if updated:
        publish(EventType.QUEUE_PAUSED, of_queue, name, paused_by=by)
        operator.acted("queue.paused", name, changes=operator.changed(before, _shown(queue)))
    return queue


def drain(name: str, *, by: str | None = None) -> Queue:
    """Drain a queue, known or not, and return it. `by` as in `pause`.

    From now on it accepts no jobs. Jobs that are in it run to their end, further attempts included.
    A paused queue stays paused as well. Other processes may store jobs for up to a second more.
    """
    check_queue(name, settings().limits)
    return _drain(name)


@database.write_transaction
def _drain(name: str) -> Queue:
    queue = touch(name)
    before = _shown(queue)
    updated = rows().filter(pk=name, draining_at__isnull=True).update(draining_at=Now())
    queue.refresh_from_db()
    if updated:
        operator.acted("queue.drained", name, changes=operator.changed(before, _shown(queue)))
        queue_configs.changed()
    return queue


def resume(name: str, *, by: str | None = None) -> Queue:
    """End the pause and the draining of a queue, and return it. `by` as in `pause`.

    Resuming a queue that is neither paused nor draining changes nothing.
    """
    check_queue(name, settings().limits)
    queue = _resume(name, by)
    notify.workers_of([name])
    return queue


@database.write_transaction
def _resume(name: str, by: str | None) -> Queue:
    queue = touch(name)
    before = _shown(queue)
    stopped = Q(paused_at__isnull=False) | Q(draining_at__isnull=False)
    if rows().filter(stopped, pk=name).update(paused_at=None, draining_at=None):
        if queue.paused:
            publish(EventType.QUEUE_RESUMED, of_queue, name, resumed_by=by)
        if queue.draining_at is not None:
            queue_configs.changed()
        queue.refresh_from_db()
        operator.acted("queue.resumed", name, changes=operator.changed(before, _shown(queue)))
    return queue


def _shown(queue: Queue) -> dict[str, Any]:
    """Return the state for the audit trail; a queue may be both paused and draining."""
    states = {QueueState.PAUSED: queue.paused_at, QueueState.DRAINING: queue.draining_at}
    return {"state": [state for state, since in states.items() if since] or [QueueState.ACTIVE]}
