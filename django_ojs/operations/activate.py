"""ACTIVATE (ojs-core §6.3): a pending job may run."""

from uuid import UUID

from django.db.models.functions import Now

from django_ojs import hooks
from django_ojs.extension import Readmission
from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, notify, transitions


@database.write_transaction
def activate(job_id: UUID, *, is_tried_again: bool = False) -> Job:
    """Make a pending job available.

    With `is_tried_again`, it waits only briefly for the lock of the job's queue, because the caller
    tries again. Raises JobNotFound, Conflict when the job is not pending, and QueueFull.
    """
    held = transitions.lock(job_id)

    def change() -> Job | None:
        return transitions.apply_one(
            Trigger.ACTIVATE, State.AVAILABLE, job_id, activated_at=Now(), enqueued_at=Now()
        )

    # A pending job takes no room in its queue; from now on it does.
    waiting = [held] if held.state == State.PENDING else []
    readmission = Readmission(jobs=waiting, is_tried_again=is_tried_again)
    with hooks.telling_rejected(waiting, is_tried_again=is_tried_again):
        activated = hooks.admit_again(readmission, change)
    job = activated or transitions.get(job_id)
    notify.workers_of([job.queue])
    changes = {"state": (State.PENDING, State.AVAILABLE)}
    operator.acted("job.activated", job_id, changes=changes)
    return job
