"""Delete the runs of cron jobs whose jobs were deleted."""

from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.extensions.cron.models import CronRun
from django_ojs.hooks import kept
from django_ojs.models import Job
from django_ojs.storage import database, raw_queries
from django_ojs.storage.dialects.expressions import OneOf

#: Runs that one step reads.
WALK = 1_000


class RunPruner:
    """Walks over the runs, a bounded number at a step, and deletes those without a job.

    A run is kept at least as long as a completed job, because the job of a run that went to another
    server is not stored here.
    """

    def __init__(self) -> None:
        self._after = 0

    def condition(self) -> str:
        """Return the SQL condition that `prune` may find any rows, because the first run is old."""
        return raw_queries.is_older(
            CronRun,
            "triggered_at",
            "id = (SELECT min(id) FROM ojs_cron_run)",
            settings().keep_completed,
        )

    def prune(self) -> int:
        """Take the next step of the walk. Return how many runs were deleted."""
        old = CronRun.primary.filter(
            pk__gt=self._after, triggered_at__lte=Now() - settings().keep_completed
        )
        rows = list(old.order_by("pk")[:WALK])
        self._after = rows[-1].pk if len(rows) == WALK else 0
        jobs = {row.job_id for row in rows}
        if jobs:
            jobs -= set(Job.primary.filter(OneOf("pk", jobs)).values_list("pk", flat=True))
        jobs -= {key for key, waits in kept(jobs).items() if waits}
        gone = [row.pk for row in rows if row.job_id in jobs]
        return database.delete_free(CronRun.primary.filter(pk__in=gone), WALK)
