"""RETRY by hand (ojs-core §6.3): a discarded job becomes available again."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db.models.functions import Coalesce, Now

from django_ojs import hooks
from django_ojs.extension import Readmission
from django_ojs.models import Job
from django_ojs.operations import draining
from django_ojs.operations.access import operator
from django_ojs.operations.dead_letter_queue import put_back
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, holds, notify, transitions

_DEADLINES: Final = ("expires_at", "enqueue_ttl", "total_timeout")


@database.write_transaction
def retry(job_id: UUID) -> Job:
    """Make a discarded job available again, at attempt 0, and keep the history of its errors.

    A job in a dead-letter queue returns to the queue where it ran. A deadline that has passed is
    removed, because the job would be discarded again at once. Raises JobNotFound, Conflict when it
    is not discarded, QueueFull, and QueuePaused where the queue is draining.
    """
    job = transitions.lock(job_id)
    with hooks.telling_rejected([job]):
        revived = revive([job])
    if not revived:
        transitions.reject(Trigger.RETRY, State.AVAILABLE, job)
    changes = {"state": (State.DISCARDED, State.AVAILABLE)}
    operator.acted("job.retried", job_id, changes=changes)
    return transitions.get(job_id)


def revive(held: Collection[Job]) -> int:
    """Make the discarded jobs among these available; the caller has locked them.

    Return how many. Raises QueuePaused, and QueueFull when there is no room for all of them. It
    does not tell the extensions which jobs were rejected: the caller does, or tries the jobs one by
    one.
    """
    put_back(held)
    revived = [job for job in held if job.state == State.DISCARDED]
    draining.check(job.queue for job in revived)
    number = hooks.admit_again(Readmission(jobs=revived), partial(_revive_all, revived))
    if number:
        notify.workers_of(job.queue for job in held)
    return number


def _revive_all(discarded: Sequence[Job]) -> int:
    holds.decide_again(discarded)
    keys = [job.pk for job in discarded]
    late = set(Job.primary.filter(pk__in=keys, expires_at__lte=Now()).values_list("pk", flat=True))
    number = _revive([key for key in keys if key not in late])
    for job in discarded:
        if job.pk in late:
            # Responses show the options as the client sent them, so the old deadlines must go.
            shown = {key: value for key, value in job.options.items() if key not in _DEADLINES}
            number += _revive([job.pk], expires_at=None, options=shown)
    return number


def _revive(keys: Collection[UUID], **deadline: Any) -> int:
    if not keys:
        return 0
    return transitions.apply(
        Trigger.RETRY,
        State.AVAILABLE,
        dict.fromkeys(keys, State.DISCARDED),
        attempt=0,
        returned=0,
        error=None,
        dead_letter=False,
        discard_reason=None,
        finished_at=None,
        queue=Coalesce("original_queue", "queue"),
        original_queue=None,
        started_at=None,
        worker_id=None,
        enqueued_at=Now(),
        **deadline,
    )
