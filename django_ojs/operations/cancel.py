"""CANCEL (ojs-core §7.6): stop a job that has not ended."""

from uuid import UUID

from django_ojs import hooks
from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.operations.cancel_locked import stop
from django_ojs.spec.states import State, Trigger, allows
from django_ojs.storage import database, transitions


def cancel(job_id: UUID) -> tuple[Job, State]:
    """Cancel a job and return it with its previous state.

    An active job is cancelled at once; its worker is informed by its next BEAT, and its ACK or FAIL
    is rejected. Cancelling a cancelled job changes nothing and succeeds. Raises JobNotFound, and
    Conflict when it was completed or discarded.
    """
    stand_in = hooks.registry.stand_ins.get("cancel")
    cancelled: tuple[Job, State] | None = stand_in(job_id) if stand_in else None
    return _cancel(job_id) if cancelled is None else cancelled


@database.write_transaction
def _cancel(job_id: UUID) -> tuple[Job, State]:
    job = transitions.lock(job_id)
    before = State(job.state)
    if before is State.CANCELLED:
        return job, before
    if not allows(Trigger.CANCEL, before, State.CANCELLED):
        transitions.reject(Trigger.CANCEL, State.CANCELLED, job)
    stop([job])
    operator.acted("job.cancelled", job_id, changes={"state": (before, State.CANCELLED)})
    return transitions.get(job_id), before
