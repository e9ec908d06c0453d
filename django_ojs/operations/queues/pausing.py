"""Pause, drain and resume queues.

A paused queue accepts jobs, and FETCH returns none of them. A draining queue accepts no jobs, and
workers finish the jobs in it.
"""

from typing import Any

from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.hooks import publish
from django_ojs.models import Queue
from django_ojs.operations.access import operator
from django_ojs.operations.queue_rows import rows, touch
from django_ojs.operations.queues.status import QueueState
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.published import EventType, of_queue
from django_ojs.storage import database, notify, queue_configs


def pause(name: str) -> Queue:
    """Pause a queue, known or not, and return it. The event names the operator.

    Pausing a paused queue keeps the time it was paused at.
    """
    check_queue(name, settings().limits)
    return _set(name, "queue.paused", paused_at=Now())


def drain(name: str) -> Queue:
    """Drain a queue, known or not, and return it.

    From now on it accepts no jobs. Jobs that are in it run to their end, further attempts included.
    A paused queue stays paused as well. Other processes may store jobs for up to a second more.
    """
    check_queue(name, settings().limits)
    return _set(name, "queue.drained", draining_at=Now())


def resume(name: str) -> Queue:
    """End the pause and the draining of a queue, and return it. The event names the operator.

    Resuming a queue that is neither paused nor draining changes nothing.
    """
    check_queue(name, settings().limits)
    queue = _set(name, "queue.resumed", paused_at=None, draining_at=None)
    notify.workers_of([name])
    return queue


@database.write_transaction
def _set(name: str, action: str, **since: Now | None) -> Queue:
    queue = touch(name)
    before = _shown(queue)
    # The row is locked: no other session changes it meanwhile.
    new = {each: at for each, at in since.items() if (at is None) != (getattr(queue, each) is None)}
    if not new:
        return queue
    rows().filter(pk=name).update(**new)
    queue.refresh_from_db()
    if "paused_at" in new and queue.paused:
        publish(EventType.QUEUE_PAUSED, of_queue, name, paused_by=operator.name())
    elif "paused_at" in new:
        publish(EventType.QUEUE_RESUMED, of_queue, name, resumed_by=operator.name())
    if "draining_at" in new:
        queue_configs.changed()
    operator.acted(action, name, changes=operator.changed(before, _shown(queue)))
    return queue


def _shown(queue: Queue) -> dict[str, Any]:
    """Return the state for the audit trail; a queue may be both paused and draining."""
    states = {QueueState.PAUSED: queue.paused_at, QueueState.DRAINING: queue.draining_at}
    return {"state": [state for state, since in states.items() if since] or [QueueState.ACTIVE]}
