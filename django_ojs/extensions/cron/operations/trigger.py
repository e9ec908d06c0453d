"""Run a cron job now, outside of its schedule."""

from django_ojs.extensions.cron import storage as cron_jobs
from django_ojs.extensions.cron.cron_events import SkipReason
from django_ojs.extensions.cron.operations.firing import DueRun, SkippedRun, enqueue, record
from django_ojs.extensions.cron.operations.queries import lock
from django_ojs.operations.access import operator
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec.errors import Conflict
from django_ojs.storage import database


@database.write_transaction
def trigger(name: str, *, by: str) -> EnqueuedJob:
    """Enqueue a job of a cron job now, even of a disabled one, and return the job.

    Its schedule stays as it is, and its overlap policy applies. `by` names the operator. Raises
    NotFound, and Conflict where no job was enqueued.
    """
    cron_job, now = lock(name)
    (run,) = enqueue([DueRun(cron_job=cron_job, scheduled_at=now, by=by)], wait=True)
    cron_jobs.store([cron_job], record([run], now))
    result = run.result
    assert result is not None  # With `wait`, `enqueue` has waited for the locks.
    if isinstance(result, EnqueuedJob):
        operator.acted("cron.run", name, object_type="cron_job", job=str(result.id))
        return result
    raise _conflict(name, result)


def _conflict(name: str, skipped: SkippedRun) -> Conflict:
    details = {"name": name, "reason": skipped.reason.value}
    if skipped.job_id is not None:
        details["active_job_id"] = str(skipped.job_id)
    if skipped.reason is SkipReason.OVERLAP:
        return Conflict("A run of the cron job has not ended.", details=details)
    return Conflict(
        f"The cron job enqueued no job ({skipped.reason.value}). {skipped.message}"
        if skipped.message
        else f"The cron job enqueued no job ({skipped.reason.value}).",
        details=details,
    )
