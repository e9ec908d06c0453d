"""Actions of operators on all jobs of a filter, and their progress."""

from typing import Final

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField

#: Stored as `stopped_by` of an operation that failed.
STOPPED_BY_ERROR: Final = "an error; see the log"


class BulkActionName(models.TextChoices):
    RETRY = "retry", _("Retry")
    CANCEL = "cancel", _("Cancel")
    DELETE = "delete", _("Delete")
    RUN_NOW = "run_now", _("Run now")

    def of(self, jobs: str) -> str:
        """Return the action on some jobs in words: "Retry 3 jobs", "Run 3 jobs now"."""
        sentences = {
            self.RETRY: gettext("Retry %(jobs)s"),
            self.CANCEL: gettext("Cancel %(jobs)s"),
            self.DELETE: gettext("Delete %(jobs)s"),
            self.RUN_NOW: gettext("Run %(jobs)s now"),
        }
        return sentences[self] % {"jobs": jobs}


class BulkState(models.TextChoices):
    """The state of an operation. Maintenance executes pending and running ones."""

    PENDING = "pending", _("Waiting")
    RUNNING = "running", _("Running")
    STOPPED = "stopped", _("Stopped")
    DONE = "done", _("Done")


class BulkOperation(StoredModel):
    """A bulk operation (ojs-bulk-operations §7), kept for long, to show who did what.

    `matched` is always `done` + `skipped` + `failed`: they change in the transaction that changes
    the jobs. `expected` is the number of jobs when the operation was created, if it was counted.
    `cursor` is the position that the scan of the jobs has reached.
    """

    id = models.BigAutoField(primary_key=True)
    action = models.CharField(max_length=16, choices=BulkActionName.choices)
    filter = StoredJSONField(default=dict)
    #: What a retry changes in a job before it makes it available (ojs-dead-letter §6.3).
    changes = StoredJSONField(default=dict, blank=True)
    state = models.CharField(max_length=16, choices=BulkState.choices, default=BulkState.PENDING)
    ordered_by = models.CharField(max_length=255)
    stopped_by = models.CharField(max_length=255, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    expected = models.PositiveBigIntegerField(null=True)
    matched = models.PositiveBigIntegerField(default=0)
    done = models.PositiveBigIntegerField(default=0)
    skipped = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    #: The number of jobs that were left unchanged, by reason.
    reasons = StoredJSONField(default=dict, blank=True)
    #: The first hundred jobs that were left unchanged: {"job_id": …, "error": …}.
    errors = StoredJSONField(default=list, blank=True)
    cursor = models.CharField(max_length=255, blank=True)

    class Meta:
        db_table = "ojs_bulk_operation"
        # The permission to view jobs includes the operations on them.
        default_permissions = ()
        verbose_name = _("bulk operation")
        verbose_name_plural = _("bulk operations")
        indexes = [
            models.Index(
                "id",
                name="ojs_bulk_operation_open",
                condition=Q(state__in=[BulkState.PENDING, BulkState.RUNNING]),
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_action_display()} #{self.pk}"

    @property
    def stopper(self) -> str:
        """Who or what stopped it, in the language of the reader."""
        is_error = self.stopped_by == STOPPED_BY_ERROR
        return gettext("an error; see the log") if is_error else self.stopped_by


class BulkOperationJob(StoredModel):
    """A job that a retry made available, so that the page of the operation shows what became of it.

    The row is kept for a week after the end of the operation. Of a large operation, only the first
    jobs have a row.
    """

    id = models.BigAutoField(primary_key=True)
    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="jobs")
    job_id = models.UUIDField()

    class Meta:
        db_table = "ojs_bulk_operation_job"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.job_id} of {self.operation_id}"
