"""The registered workers, and their directives."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel
from django_ojs.spec.scheduling import MAX_NAME


class Directive(models.TextChoices):
    """Worker lifecycle states, reported by a worker or directed (worker-protocol §2)."""

    RUNNING = "running", _("Running")
    QUIET = "quiet", _("Quiet")
    TERMINATE = "terminate", _("Terminating")


class Worker(StoredModel):
    """A worker process that has sent a BEAT or a FETCH (worker-protocol §3, §4).

    Deregistered or dead workers have no row.
    """

    id = models.CharField(primary_key=True, max_length=255)
    owner = models.TextField(blank=True, help_text=_("The principal that made it known."))
    hostname = models.CharField(max_length=255, blank=True)
    pid = models.PositiveBigIntegerField(null=True)
    queues = models.JSONField(default=list)
    pool = models.CharField(
        max_length=MAX_NAME, blank=True, help_text=_("The pool that it belongs to; empty for none.")
    )
    labels = models.JSONField(default=list)
    job_types = models.JSONField(
        default=list, help_text=_("The types that it has handlers for; empty if it did not say.")
    )
    metadata = models.JSONField(default=dict)
    concurrency = models.PositiveIntegerField(null=True)
    # An operator may change `concurrency` to a number from `least_slots` to `most_slots`, which is
    # `wanted_slots` until the worker reports it.
    least_slots = models.PositiveIntegerField(null=True)
    most_slots = models.PositiveIntegerField(null=True)
    wanted_slots = models.PositiveIntegerField(null=True)
    active_jobs = models.PositiveIntegerField(default=0)
    version = models.CharField(max_length=64, blank=True)
    release = models.CharField(
        max_length=64, blank=True, help_text=_("The release of the project that it runs.")
    )
    state = models.CharField(max_length=16, choices=Directive.choices, default=Directive.RUNNING)
    directive = models.CharField(
        max_length=16, choices=Directive.choices, default=Directive.RUNNING
    )
    started_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(help_text=_("Its last BEAT, FETCH or progress report."))
    beat_at = models.DateTimeField(null=True, help_text=_("Its last BEAT; none so far if empty."))
    beat_interval_ms = models.PositiveBigIntegerField(
        null=True, help_text=_("The interval between its beats, if it sends one.")
    )
    steady_since = models.DateTimeField(
        null=True,
        help_text=_(
            "Since when it can store each heartbeat and extend its leases in time; empty while it "
            "cannot."
        ),
    )
    dead_after_ms = models.PositiveBigIntegerField(
        help_text=_("Time without a heartbeat after which the worker counts as dead.")
    )
    enforces_timeouts = models.BooleanField(
        default=False, help_text=_("Whether it fails jobs that run longer than their timeout.")
    )

    # The worker's own database session, if it has one: when it no longer exists, the worker's
    # process has ended, and its jobs are rescued before three heartbeats are missed.
    session_pid = models.PositiveBigIntegerField(null=True)
    session_started_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "ojs_worker"
        default_permissions = ("view",)
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return self.id
