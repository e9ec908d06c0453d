"""Release the jobs that waited for an earlier run to end (overlap policy "enqueue")."""

from contextlib import suppress

from django.db.models.functions import Now

from django_ojs.extensions.cron import storage as cron_jobs
from django_ojs.extensions.cron.models import CronJob, CronRun, CronRunPhase
from django_ojs.extensions.cron.operations.queries import split
from django_ojs.models import Job
from django_ojs.operations.activate import activate
from django_ojs.spec.errors import Conflict, JobNotFound, QueueFull, RowLocked
from django_ojs.storage import database


def release() -> int:
    """Activate the next held job of cron jobs whose earlier runs have ended. Return how many."""
    return sum(_release(name) for name in cron_jobs.with_held_runs())


@database.write_transaction
def _release(name: str) -> int:
    # The runs of a removed cron job, which has no row, are released as well. The runs of a cron job
    # that another transaction has locked are released later.
    cron_job = CronJob.primary.filter(pk=name).values_list("pk")
    if not cron_job.select_for_update(skip_locked=True) and cron_job.exists():
        return 0
    by_name, ended = split([name])
    going_on = by_name.get(name, [])
    held = [run for run in going_on if run.phase == CronRunPhase.HELD]
    CronRun.primary.filter(pk__in=[run.pk for run in ended]).update(phase=CronRunPhase.ENDED)
    if not held or len(held) < len(going_on):
        return 0
    if Job.primary.filter(pk=held[0].job_id, due_at__gt=Now()).exists():
        return 0  # The job has a `scheduled_at` from its template, which would be lost.
    with suppress(Conflict, JobNotFound):  # It was activated or cancelled by hand.
        try:
            activate(held[0].job_id, is_tried_again=True)
        except (QueueFull, RowLocked):
            return 0
    CronRun.primary.filter(pk=held[0].pk).update(phase=CronRunPhase.OPEN)
    return 1


def release_all() -> None:
    """Activate all held jobs, because nothing else does once the site has no cron jobs any more."""
    held = CronRun.primary.filter(phase=CronRunPhase.HELD).order_by("id")
    for job_id in held.values_list("job_id", flat=True):
        with suppress(Conflict, JobNotFound):  # It was activated or cancelled by hand.
            activate(job_id)
