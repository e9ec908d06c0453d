"""The unsuccessful runs of a job."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField
from django_ojs.models.job import Job
from django_ojs.spec import times
from django_ojs.spec.failure import with_code


class AttemptOutcome(models.TextChoices):
    """The outcome of an unsuccessful run."""

    FAILED = "failed", _("Failed")
    TIMEOUT = "timeout", _("Timed out")
    LAPSED = "lapsed", _("Lease expired")
    LOST = "lost", _("Worker died")
    SHUTDOWN = "shutdown", _("Worker shut down")
    RETURNED = "returned", _("Returned")
    CANCELLED = "cancelled", _("Cancelled")


class Attempt(StoredModel):
    """An unsuccessful run (ojs-retry §10). A successful one needs no row: the job has its data."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    attempt = models.PositiveIntegerField()
    run = models.PositiveIntegerField()
    worker_id = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001  # NULL: the client gave none
    outcome = models.CharField(max_length=16, choices=AttemptOutcome.choices)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField()
    error = StoredJSONField(null=True)
    retry_delay_ms = models.PositiveBigIntegerField(null=True)

    class Meta:
        db_table = "ojs_attempt"
        default_permissions = ()
        ordering = ["id"]

    def __str__(self) -> str:
        return f"attempt {self.attempt} of {self.job_id}: {self.outcome}"

    @classmethod
    def errors_of(cls, jobs: Collection[UUID]) -> dict[UUID, list[dict[str, Any]]]:
        """Return the `errors` of these jobs, oldest first, in one query."""
        errors = defaultdict(list)
        if jobs:
            runs = cls.primary.filter(job__in=jobs, error__isnull=False)
            for run in runs.order_by("id"):
                errors[run.job_id].append(run.as_error())
        return errors

    def as_error(self) -> dict[str, Any]:
        """Render as an entry of the job's `errors` (ojs-retry §10.1, ojs-errors §6.1)."""
        finished = times.format_timestamp(self.finished_at)
        entry = {
            **with_code(self.error),
            "attempt": self.attempt,
            "timestamp": finished,
            "occurred_at": finished,
        }
        if self.retry_delay_ms is not None:
            entry["retry_delay_ms"] = self.retry_delay_ms
        return entry
