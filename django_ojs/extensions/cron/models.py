"""Cron jobs: the registered schedules, and the jobs that they have created."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField


class OverlapPolicy(models.TextChoices):
    """What happens when a run is due and an earlier one has not ended (ojs-cron §6.1)."""

    SKIP = "skip", _("Skip")
    ALLOW = "allow", _("Allow")
    CANCEL_PREVIOUS = "cancel_previous", _("Cancel the previous run")
    ENQUEUE = "enqueue", _("Enqueue")


class CronOwner(models.TextChoices):
    """What registered a cron job, and may change it."""

    CODE = "code", _("Code")
    API = "api", "API"


class CronJob(StoredModel):
    """A schedule, and the job that each of its occurrences enqueues (ojs-cron §2).

    `due_at` is the next occurrence; schedulers claim it by compare-and-set. It equals
    `next_run_at`, unless a change to summer time skips that occurrence: nothing runs then.
    """

    name = models.CharField(primary_key=True, max_length=255)
    expression = models.CharField(max_length=255)
    timezone = models.CharField(max_length=255, default="UTC")
    #: The job as a client would send it: `type`, `args`, `meta`, `options`.
    template = StoredJSONField()
    # The type and the queue of the template, for lists and permissions.
    type = models.CharField(max_length=255)
    queue = models.CharField(max_length=255)
    overlap_policy = models.CharField(
        max_length=16, choices=OverlapPolicy.choices, default=OverlapPolicy.SKIP
    )
    enabled = models.BooleanField(default=True)
    description = models.TextField(null=True, blank=True)  # noqa: DJ001  # NULL if none was given
    owner = models.CharField(max_length=8, choices=CronOwner.choices, default=CronOwner.API)
    #: The project (SERVICE_NAME) and the function, if code declares the cron job.
    service = models.CharField(max_length=255, blank=True, editable=False)
    defined_in = models.CharField(max_length=512, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    updated_at = models.DateTimeField(db_default=Now(), editable=False)
    due_at = models.DateTimeField(null=True, editable=False)
    next_run_at = models.DateTimeField(null=True, editable=False)
    last_run_at = models.DateTimeField(null=True, editable=False)
    last_job_id = models.UUIDField(null=True, editable=False)
    run_count = models.PositiveBigIntegerField(default=0, editable=False)
    #: Occurrences that passed while no scheduler ran.
    missed_count = models.PositiveBigIntegerField(default=0, editable=False)
    #: Occurrences without a job since the last run: how many, and since when. And why the latest
    #: occurrence had no job (`cron_events.SkipReason`), with the job that is the reason.
    skipped_count = models.PositiveBigIntegerField(default=0, editable=False)
    skipped_since = models.DateTimeField(null=True, editable=False)
    skipped_why = models.CharField(max_length=16, blank=True, editable=False)
    skipped_for = models.UUIDField(null=True, editable=False)

    class Meta:
        db_table = "ojs_cron_job"
        default_permissions = ("view",)
        verbose_name = _("cron job")
        verbose_name_plural = _("cron jobs")
        indexes = [
            models.Index(
                "due_at", "name", name="ojs_cron_job_due", condition=Q(due_at__isnull=False)
            ),
            # The cron jobs of a project's code, which a sync reads.
            models.Index("service", name="ojs_cron_job_code", condition=Q(owner="code")),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(enabled=True) | Q(due_at__isnull=True, next_run_at__isnull=True),
                name="ojs_cron_job_disabled_has_no_time",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class CronRunPhase(models.TextChoices):
    """The state of a run, as the next occurrence needs it."""

    #: Its job is pending until the earlier runs have ended (overlap policy "enqueue").
    HELD = "held", _("Held")
    #: Its job had not ended when it was last checked.
    OPEN = "open", _("Open")
    ENDED = "ended", _("Ended")


class CronRun(StoredModel):
    """A job that a cron job enqueued. The job itself has only the name and time in its `meta`.

    It has no foreign keys: it is pruned after its job, and a cron job of the same name that is
    registered again has the same runs.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=255)
    job_id = models.UUIDField()
    scheduled_at = models.DateTimeField()
    triggered_at = models.DateTimeField(db_default=Now())
    triggered_by = models.CharField(
        max_length=255,
        blank=True,
        help_text=_("The operator who started the run. Empty: the schedule did."),
    )
    phase = models.CharField(
        max_length=8, choices=CronRunPhase.choices, default=CronRunPhase.OPEN, editable=False
    )

    class Meta:
        db_table = "ojs_cron_run"
        default_permissions = ()
        verbose_name = _("run of a cron job")
        verbose_name_plural = _("runs of cron jobs")
        indexes = [
            models.Index("name", "id", name="ojs_cron_run_name"),
            models.Index(
                "name", "id", name="ojs_cron_run_open", condition=Q(phase__in=["open", "held"])
            ),
            models.Index("name", "id", name="ojs_cron_run_held", condition=Q(phase="held")),
        ]

    def __str__(self) -> str:
        return f"{self.name} at {self.scheduled_at}"
