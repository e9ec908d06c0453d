"""Run a job again: enqueue a copy of one that has ended."""

from typing import Any, Final
from uuid import UUID

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.operations.enqueue import parents
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.operations.operator_push import push_by_operator
from django_ojs.spec.envelope import Envelope, parse, render
from django_ojs.spec.errors import Conflict
from django_ojs.spec.states import TERMINAL, State
from django_ojs.storage import transitions

#: Members that belong to the old job alone.
_NOT_COPIED: Final = ("id", "scheduled_at", "expires_at")


def run_again(job_id: UUID) -> EnqueuedJob:
    """Enqueue a new job with the type, arguments, metadata and options of one that has ended.

    The old job stays as it is. The copy is available at once and has no `expires_at`; its
    `enqueue_ttl` and `total_timeout` begin anew. Raises JobNotFound, Conflict when the job has not
    ended or has offloaded arguments, and what PUSH raises: DuplicateJob, QueueFull.
    """
    job = ended(job_id)
    return push_by_operator(copy(job), copy_of=job_id)


def ended(job_id: UUID) -> Job:
    """Return a job that can be run again. Raises JobNotFound and Conflict."""
    job = transitions.get(job_id)
    if State(job.state) not in TERMINAL:
        raise Conflict(
            f"The job is {job.state}; only a job that has ended can be run again.",
            details={
                "job_id": str(job_id),
                "current_state": job.state,
                "expected_state": sorted(TERMINAL),
            },
        )
    if "offloaded" in job.options:
        # The objects in the bucket belong to this job: a worker reads them for no other job, and
        # they are deleted with this one.
        raise Conflict(
            "The job has arguments in the bucket of OFFLOAD, which only this job can read; "
            "enqueue it anew from your code.",
            details={"job_id": str(job_id), "current_state": job.state},
        )
    return job


def copy(job: Job, **changes: Any) -> Envelope:
    """Return the envelope of a new job like another one, with some attributes changed.

    The other job is its parent. Raises InvalidRequest and its subclasses.
    """
    values = settings()
    copied = {name: value for name, value in render(job).items() if name not in _NOT_COPIED}
    copied["queue"] = job.original_queue or job.queue
    copied |= {"parent_id": str(job.pk), "root_id": str(parents.root_of(job))}
    return parse({**copied, **changes}, default_retry=values.default_retry, limits=values.limits)
