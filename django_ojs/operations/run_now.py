"""Run jobs before they are due: the TIMER of ojs-core §6.3, by hand."""

from collections.abc import Collection
from uuid import UUID

from django.db.models.functions import Now

from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.spec.states import State, Trigger, allows
from django_ojs.storage import database, notify, transitions


@database.write_transaction
def run_now(job_id: UUID) -> Job:
    """Make a scheduled or retryable job available. Its attempts stay as they are.

    Raises JobNotFound, and Conflict when it is in another state.
    """
    job = transitions.lock(job_id)
    if not allows(Trigger.TIMER, State(job.state), State.AVAILABLE):
        transitions.reject(Trigger.TIMER, State.AVAILABLE, job)
    promote([job])
    operator.acted("job.run_now", job_id, changes={"state": (job.state, State.AVAILABLE)})
    return transitions.get(job_id)


def promote(held: Collection[Job]) -> int:
    """Make these jobs available, which the caller has locked. Return how many.

    They need no room in a bounded queue, because scheduled and retryable jobs count already.
    """
    states = {job.pk: State(job.state) for job in held}
    promoted = transitions.apply(Trigger.TIMER, State.AVAILABLE, states, enqueued_at=Now())
    notify.workers_of(job.queue for job in held)
    return promoted
