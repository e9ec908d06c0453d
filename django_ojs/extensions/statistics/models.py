"""Figures by the minute, from which charts of rates and durations are drawn without the jobs."""

from django.db import models

from django_ojs.models.base import StoredModel


class Rollup(StoredModel):
    """Counts and histograms of one minute, queue and job type.

    Each writer adds rows of its own; maintenance merges them into one. A histogram is a list of
    numbers of durations: below 1 ms, from 1 to 2 ms, from 2 to 4 ms … (see `rollups.bucket`).
    """

    id = models.BigAutoField(primary_key=True)
    minute = models.DateTimeField()
    queue = models.CharField(max_length=255)
    type = models.CharField(max_length=255)
    enqueued = models.PositiveBigIntegerField(default=0)
    completed = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    discarded = models.PositiveBigIntegerField(default=0)
    rejected = models.PositiveBigIntegerField(default=0)
    dropped = models.PositiveBigIntegerField(default=0)
    #: Failed runs that were lost with their worker.
    lost = models.PositiveBigIntegerField(default=0)
    #: Stored reports of progress.
    progress_updates = models.PositiveBigIntegerField(default=0)
    #: Unsuccessful runs that are not in the history of their job, because it could not be stored.
    history_failures = models.PositiveBigIntegerField(default=0, db_default=0)
    waited = models.JSONField(default=list)
    ran = models.JSONField(default=list)

    class Meta:
        db_table = "ojs_rollup"
        default_permissions = ()
        indexes = [
            models.Index("minute", "queue", "type", name="ojs_rollup_key"),
            # For the page of a type, which reads a week of it among the rows of all types.
            models.Index("type", "minute", name="ojs_rollup_type"),
        ]

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M} {self.queue} {self.type}"
