"""ACTIVATE (ojs-core §6.3): a pending job may run."""

from uuid import UUID

from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.operations.backpressure import bounds, rejections
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, notify, transitions


@database.write_transaction
def activate(job_id: UUID, *, is_tried_again: bool = False) -> Job:
    """Make a pending job available.

    `is_tried_again`: wait hardly at all for the lock of its queue. Raises JobNotFound, Conflict
    when it is not pending, and QueueFull.
    """
    held = transitions.lock(job_id)
    if held.state == State.PENDING:
        # A pending job does not count in its queue's bound; from now on it does.
        with rejections.recorded([held], is_tried_again=is_tried_again):
            bounds.enter_all([held], is_tried_again=is_tried_again)
    activated = transitions.apply_one(
        Trigger.ACTIVATE, State.AVAILABLE, job_id, activated_at=Now(), enqueued_at=Now()
    )
    job = activated or transitions.get(job_id)
    notify.workers_of([job.queue])
    changes = {"state": (State.PENDING, State.AVAILABLE)}
    operator.acted("job.activated", job_id, changes=changes)
    return job
