"""Delete jobs that are in a terminal state; pruning does the same by age."""

from collections.abc import Collection
from uuid import UUID

from django_ojs import hooks
from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.spec.errors import Conflict
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.suggestions import one_of
from django_ojs.storage import database, transitions


@database.write_transaction
def delete(job_id: UUID) -> Job:
    """Delete a job that has ended, with the history of its errors, and return it.

    Raises JobNotFound, and Conflict when it has not ended.
    """
    job = transitions.lock(job_id)
    if State(job.state) not in TERMINAL:
        raise not_ended(job)
    erase([job_id])
    operator.acted("job.deleted", job_id, type=job.type, queue=job.queue, state=job.state)
    return job


def not_ended(job: Job) -> Conflict:
    """Return the error for a job that has not ended and may not be deleted."""
    expected = sorted(state.value for state in TERMINAL)
    return Conflict(
        f"The job is {job.state}; delete needs it {one_of(expected)}.",
        details={
            "job_id": str(job.pk),
            "current_state": job.state,
            "expected_state": expected,
        },
    )


def erase(keys: Collection[UUID]) -> int:
    """Delete these jobs, which the caller has locked, and their histories. Return how many."""
    for name, hook in hooks.registry.erased:
        try:
            hook(keys)
        except Exception as error:
            hooks.undone_by(name, error)
            raise
    return database.dialect().erase(database.connection(), keys)
