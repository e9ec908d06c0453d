"""What an operator does to the steps of a job."""

from uuid import UUID

from django.db.models import Max
from django.db.models.functions import Now

from django_ojs.extensions.steps import gathering
from django_ojs.extensions.steps.models import Step, StepStatus
from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.operations.retry import retry
from django_ojs.operations.run_now import promote, run_now
from django_ojs.spec.errors import Conflict, NotFound
from django_ojs.spec.states import State
from django_ojs.storage import database, transitions


@database.write_transaction
def end_wait(job_id: UUID, number: int | None = None) -> Job:
    """End the wait of a job: a sleep is over, a wait times out, a step is tried again now.

    With `number`, do so only if this step waits. Raises JobNotFound, and Conflict when the job is
    not scheduled, or no such step waits.
    """
    job = transitions.lock(job_id)
    waiting = Step.primary.filter(job_id=job_id, outcome=StepStatus.WAITING)
    if number is not None:
        waiting = waiting.filter(number=number)
    if job.state != State.SCHEDULED or not waiting.update(until=Now()):
        raise Conflict(
            f"The job is {job.state}; it must be scheduled, with a step that waits.",
            details={
                "job_id": str(job_id),
                "current_state": job.state,
                "expected_state": State.SCHEDULED.value,
            },
        )
    promote([job])
    changes = {"state": (job.state, State.AVAILABLE)}
    operator.acted("job.wait_ended", job_id, changes=changes, step=waiting.get().name)
    return transitions.get(job_id)


def run_again_from(job_id: UUID, number: int) -> Job:
    """Delete a step and the steps after it, and run the job, which takes these steps again.

    Jobs that a deleted step still waits for are cancelled. Raises JobNotFound, NotFound when the
    job has no such step, and Conflict when it is neither scheduled nor discarded.
    """
    job, waited_for = _forget(job_id, number)
    gathering.cancel(waited_for)
    return job


@database.write_transaction
def _forget(job_id: UUID, number: int) -> tuple[Job, list[Step]]:
    job = transitions.lock(job_id)
    if job.state not in (State.SCHEDULED, State.DISCARDED):
        raise Conflict(
            f"The job is {job.state}; to run again from a step it must be discarded or scheduled.",
            details={
                "job_id": str(job_id),
                "current_state": job.state,
                "expected_state": [State.DISCARDED.value, State.SCHEDULED.value],
            },
        )
    last = Step.primary.filter(job_id=job_id).aggregate(last=Max("number"))["last"]
    if last is None or number > last:
        details = {"resource_type": "step", "resource_id": f"{job_id}:{number}"}
        raise NotFound("The job has no step with this number.", details=details)
    forgotten = Step.primary.filter(job_id=job_id, number__gte=number)
    first = forgotten.order_by("number").values_list("name", flat=True)[0]
    waited_for = list(gathering.waiting([job_id]))
    steps, _ = forgotten.delete()
    operator.acted("job.steps_forgotten", job_id, step=first, steps=steps)
    again = run_now(job_id) if job.state == State.SCHEDULED else retry(job_id)
    return again, waited_for
