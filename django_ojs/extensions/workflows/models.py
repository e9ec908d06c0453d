"""Workflows: their graphs of steps, and the journal of their jobs that have ended."""

from typing import Final

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.extensions.workflows.spec import CALLBACKS, Condition
from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField
from django_ojs.spec import ids


class WorkflowState(models.TextChoices):
    """The state of a workflow (ojs-workflows §8.1). It runs as soon as it is created."""

    RUNNING = "running", _("Running")
    COMPLETED = "completed", _("Completed")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")


class StepState(models.TextChoices):
    """The state of a step. While it is enqueued, the state of its job is more precise."""

    WAITING = "waiting", _("Waiting")
    #: It may start, but its job could not be enqueued, because its queue was full for example.
    READY = "ready", _("Ready")
    ENQUEUED = "enqueued", _("Enqueued")
    COMPLETED = "completed", _("Completed")
    FAILED = "failed", _("Failed")
    #: The workflow was cancelled before the step ended.
    CANCELLED = "cancelled", _("Cancelled")
    #: Its condition was not met: it never starts.
    SKIPPED = "skipped", _("Skipped")


class Workflow(StoredModel):
    """A graph of steps, and how far it is (ojs-workflows §3).

    The counters of jobs leave out callbacks; `steps_left` counts them, and joins too.
    """

    id = models.UUIDField(primary_key=True, default=ids.uuid7, editable=False)
    type = models.CharField(max_length=8)
    name = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001  # NULL: none was given
    #: The id that the client gave it, if that is no UUIDv7 and so cannot be its id here.
    client_id = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001  # as above
    state = models.CharField(
        max_length=16, choices=WorkflowState.choices, default=WorkflowState.RUNNING
    )
    #: The queues of its jobs, for permissions.
    queues = StoredJSONField(default=list)
    jobs_total = models.PositiveIntegerField()
    jobs_completed = models.PositiveIntegerField(default=0)
    jobs_failed = models.PositiveIntegerField(default=0)
    #: How many steps have not ended.
    steps_left = models.PositiveIntegerField()
    #: Whether the workflow fails because a step failed. It ends when all its steps have ended.
    has_failed = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "ojs_workflow"
        default_permissions = ("view",)
        verbose_name = _("workflow")
        verbose_name_plural = _("workflows")
        indexes = [
            models.Index(
                "state", "finished_at", name="ojs_workflow_finished", condition=~Q(state="running")
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["client_id"], name="ojs_workflow_client_id"),
            models.CheckConstraint(
                condition=Q(state="running", finished_at__isnull=True)
                | (~Q(state="running") & Q(finished_at__isnull=False)),
                name="ojs_workflow_finished_has_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.name or self.pk} ({self.state})"

    @property
    def jobs_ended(self) -> int:
        return self.jobs_completed + self.jobs_failed


#: The number of the extension, and its bit in `Job.marks`, which says that the job is a step of a
#: workflow.
NUMBER: Final = 16
MARK: Final = 1 << NUMBER


class WorkflowStep(StoredModel):
    """A step of a workflow: a job, or a join, which has none (see `spec.graph.GraphStep`).

    `id` is also the id of its job, given when the workflow is created, so that no step gets two
    jobs. `parents` and `dependents` are positions of other steps of the workflow.
    """

    id = models.UUIDField(primary_key=True, default=ids.uuid7, editable=False)
    workflow_id = models.UUIDField()
    #: Its index in the topological order of the graph.
    position = models.PositiveIntegerField()
    key = models.TextField()
    name = models.TextField(null=True, blank=True)  # noqa: DJ001  # NULL: none was given
    path = models.TextField(blank=True)
    #: NULL for a join.
    type = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001  # as above
    #: The job as a client would send it; NULL for a first step, whose job exists already.
    job = StoredJSONField(null=True, blank=True)
    condition = models.CharField(
        max_length=16, choices=[(each.value, each.value) for each in Condition]
    )
    callback = models.CharField(  # noqa: DJ001  # NULL: it is no callback
        max_length=16, null=True, blank=True, choices=[(each, each) for each in CALLBACKS]
    )
    last_result = models.BooleanField(default=False)
    fails_workflow = models.BooleanField(default=True)
    parents = StoredJSONField(default=list)
    dependents = StoredJSONField(default=list)
    #: How many of the steps that it depends on have not ended, and how many ended in which way.
    outstanding = models.PositiveIntegerField(default=0)
    succeeded = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0)
    state = models.CharField(max_length=16, choices=StepState.choices, default=StepState.WAITING)
    #: How often its job could not be enqueued, and when that is tried again.
    start_failures = models.PositiveSmallIntegerField(default=0)
    start_after = models.DateTimeField(null=True, blank=True)
    #: The result of its job. A result that is too large for `parent_results` is not copied.
    result = StoredJSONField(null=True, blank=True)
    #: The length of the result of its job, in bytes of JSON.
    result_size = models.PositiveBigIntegerField(null=True, blank=True)
    error = StoredJSONField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "ojs_workflow_step"
        default_permissions = ()
        verbose_name = _("step of a workflow")
        verbose_name_plural = _("steps of workflows")
        indexes = [
            models.Index("workflow_id", name="ojs_workflow_step_ready", condition=Q(state="ready")),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["workflow_id", "position"], name="ojs_workflow_step_position"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key} ({self.state})"

    @property
    def is_join(self) -> bool:
        """Whether it has no job."""
        return self.type is None

    @property
    def stands_for_nested(self) -> bool:
        """Whether it is the join of a nested workflow; others join the members of a batch."""
        return self.is_join and self.key.rpartition(".")[2].isdigit()


class EndedWorkflowJob(StoredModel):
    """The end of a job of a workflow, until the workflow has been advanced.

    A trigger on `ojs_job` appends the rows, in the transaction that ends the job, so that no
    operation can forget it. They are only appended and deleted: members of a group that end at the
    same time share no row.
    """

    id = models.BigAutoField(primary_key=True)
    workflow_id = models.UUIDField()
    job_id = models.UUIDField()
    #: The state of the job, or "deleted" if it was deleted before it had ended.
    state = models.CharField(max_length=16)

    class Meta:
        db_table = "ojs_workflow_ended_job"
        default_permissions = ()
        indexes = [models.Index("workflow_id", "id", name="ojs_workflow_ended_job_wf")]

    def __str__(self) -> str:
        return f"{self.job_id} ({self.state})"
