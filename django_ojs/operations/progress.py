"""PROGRESS (ojs-progress §6): a worker reports progress, which also extends the lease."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from django_ojs.extension import Count
from django_ojs.hooks import count, is_published, publish, registry
from django_ojs.models import Job
from django_ojs.operations import worker_activity
from django_ojs.operations.worker_activity import Principal
from django_ojs.spec import times
from django_ojs.spec.errors import ClaimLost
from django_ojs.spec.failure import clean
from django_ojs.spec.progress import Report, after
from django_ojs.spec.published import MAX_MESSAGE_CHARACTERS, EventType, of_run
from django_ojs.spec.states import State
from django_ojs.storage import database, transitions
from django_ojs.storage.transitions import ANY_CLAIM, Claim

#: The shortest time between two progress events of a job (ojs-progress §6.2).
EVENT_EVERY = timedelta(seconds=1)


@database.write_transaction
def report(
    job_id: UUID,
    reported: Report,
    *,
    claim: Claim = ANY_CLAIM,
    principal: Principal = worker_activity.PROJECT,
) -> Job:
    """Store the progress of a run, extend its lease, and return the job.

    A job that is not active stays unchanged, without an error: it may have ended while the report
    was in transit. Raises JobNotFound, and ClaimLost when it is active under another claim.
    """
    job = transitions.lock(job_id)
    if job.state != State.ACTIVE:
        return job
    if not claim.holds(job):
        details = {"job_id": str(job_id), "current_state": job.state}
        raise ClaimLost("The job is active under another claim.", details=details)
    now = timezone.now()
    job.progress = after(job.progress, reported, run=job.run, now=now)
    is_told = _is_to_be_told(job.progress, now)
    until = worker_activity.extended()
    Job.primary.filter(pk=job_id).update(progress=job.progress, lease_until=until)
    for hook in registry.reported:
        hook(job, reported)
    worker_activity.after_progress(job.worker_id, principal)
    numbers = {(job.queue, job.type): 1}
    database.after_commit(lambda: count(Count.PROGRESS_UPDATES, numbers))
    if is_told:
        _publish(job)
    return job


def _is_to_be_told(progress: dict[str, Any], now: datetime) -> bool:
    """Whether an event of this progress is due; note then that there is one."""
    if progress.get("progress") is None or not is_published(EventType.JOB_PROGRESS):
        return False
    if (told_at := progress.get("told_at")) is not None:
        since = now - times.parse_timestamp(told_at, "told_at")
        if timedelta(0) <= since < EVENT_EVERY:
            return False
    progress["told_at"] = progress["updated_at"]
    return True


def _publish(job: Job) -> None:
    message = (job.progress.get("data") or {}).get("message")
    data = {"progress_percent": round(100 * job.progress["progress"], 2)}
    if message and isinstance(message, str):
        data["progress_message"] = clean(message, MAX_MESSAGE_CHARACTERS)
    publish(EventType.JOB_PROGRESS, of_run, job, **data)
