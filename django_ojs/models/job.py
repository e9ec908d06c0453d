"""The job: its envelope, its state and its claim, one row."""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from django_ojs import hooks
from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField
from django_ojs.spec import envelope, ids, retry_policy
from django_ojs.spec.isolation import ISOLATED_AFTER
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.times import elapsed

STATES = [
    (State.SCHEDULED.value, _("Scheduled")),
    (State.AVAILABLE.value, _("Available")),
    (State.PENDING.value, _("Pending")),
    (State.ACTIVE.value, _("Active")),
    (State.COMPLETED.value, _("Completed")),
    (State.RETRYABLE.value, _("Retryable")),
    (State.CANCELLED.value, _("Cancelled")),
    (State.DISCARDED.value, _("Discarded")),
]
_DUE = [State.SCHEDULED, State.RETRYABLE]
_FINISHED = sorted(TERMINAL)
_WELL = (State.ACTIVE, State.COMPLETED)


class JobManager(models.Manager["Job"]):
    """Rows that only an enqueue creates."""

    def create(self, **values: Any) -> "Job":
        """Reject the call: such a row would have passed no check, and no bound of its queue."""
        raise TypeError(_NOT_CREATED)

    def bulk_create(self, objs: Iterable["Job"], *args: Any, **kwargs: Any) -> "list[Job]":
        """Reject the call; see `create`."""
        raise TypeError(_NOT_CREATED)


_NOT_CREATED = (
    "A job is created by an enqueue: call handler.enqueue(...), ojs.enqueue(type, args) or "
    "ojs.enqueue_batch(...). They check it, apply its policies and notify the workers."
)


class Job(StoredModel):
    """One job (ojs-core §5). Only `storage.transitions` and the dialects write its `state`.

    Times are by the clock of the database. `args`, `meta`, `result` and `error` are JSON; `options`
    has the attributes of the envelope without a column (retry policy, tags, uniqueness, schema,
    unknown attributes).
    """

    objects: ClassVar[models.Manager["Job"]] = JobManager()

    id = models.UUIDField(primary_key=True, default=ids.uuid7, editable=False)
    type = models.CharField(max_length=255)
    queue = models.CharField(max_length=255, default="default")
    state = models.CharField(max_length=16, choices=STATES)
    priority = models.SmallIntegerField(default=0)
    args = StoredJSONField(default=list)
    meta = StoredJSONField(default=dict, blank=True)
    options = StoredJSONField(default=dict, blank=True)

    # `attempt` is the specification's number and starts again after a manual retry. `run` counts
    # every claim and never decreases: it is the fence that distinguishes a claim from an earlier
    # one of the same worker.
    attempt = models.PositiveIntegerField(default=0)
    max_attempts = models.PositiveIntegerField(default=3)
    returned = models.PositiveIntegerField(
        default=0, help_text=_("Claims that were returned without spending an attempt.")
    )
    lost_with_others = models.PositiveIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=_("Runs that were lost because a worker died with several jobs."),
    )
    run = models.PositiveIntegerField(default=0)

    timeout_ms = models.PositiveBigIntegerField(null=True, blank=True)
    visibility_timeout_ms = models.PositiveBigIntegerField(null=True, blank=True)

    created_at = models.DateTimeField()
    # When it last became available; jobs of the same priority are claimed in this order. Ids cannot
    # give the order, because clients generate them.
    enqueued_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(
        null=True, blank=True, help_text=_("When a scheduled or retryable job is due.")
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    activated_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    worker_id = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001  # NULL: not claimed
    lease_until = models.DateTimeField(
        null=True, blank=True, help_text=_("When the lease of the claim ends.")
    )
    lease_ms = models.PositiveBigIntegerField(
        null=True, blank=True, help_text=_("By how much a heartbeat extends the lease.")
    )

    # The hash of what the unique policy compares (ojs-unique-jobs §4). NULL without a policy.
    unique_key = models.CharField(max_length=64, null=True, blank=True, editable=False)  # noqa: DJ001  # as above

    #: Bytes of type, queue, args, meta and options as compact JSON, which a queue's bound counts.
    size_bytes = models.BigIntegerField(null=True, blank=True, editable=False)

    #: A bit for each extension that the job concerns, by its number. The triggers of an extension
    #: ignore jobs without its bit.
    marks = models.BigIntegerField(default=0, db_default=0, editable=False)

    #: The job that enqueued it (ojs-execution-history §5), which may be pruned; also in `options`.
    parent_id = models.UUIDField(null=True, blank=True, editable=False)

    #: Which claims consider it while it is available (`spec.hold`).
    hold = models.PositiveSmallIntegerField(default=0, db_default=0, editable=False)

    progress = StoredJSONField(null=True, blank=True)
    result = StoredJSONField(null=True, blank=True)
    error = StoredJSONField(null=True, blank=True)
    dead_letter = models.BooleanField(default=False)
    #: For a dead letter that was moved to a `dead_letter_queue`: the queue in which it ran.
    original_queue = models.CharField(max_length=255, null=True, blank=True, editable=False)  # noqa: DJ001  # NULL: not moved
    #: What happened before this time is not in its history (`operations.jobs.execution_history`).
    history_deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    discard_reason = models.CharField(max_length=16, null=True, blank=True)  # noqa: DJ001  # NULL: not discarded

    class Meta:
        db_table = "ojs_job"
        default_permissions = ("view",)
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        # The scopes of the HTTP API and of the admin, for users; `view_job` is the scope to read.
        permissions = [
            ("push_job", "Can enqueue jobs over HTTP"),
            ("work_job", "Can fetch jobs and report their outcomes over HTTP"),
            ("operate_job", "Can operate: cancel, retry, pause and resume, direct workers"),
            ("administer_job", "Can do everything: configure, purge, delete, stop all queues"),
            ("enqueue_job", "Can enqueue jobs in the admin"),
            ("view_payload_job", "Can see arguments, results and backtraces in the admin"),
        ]
        indexes = [
            # FETCH: the next job of a queue is the first entry of its range of the index. Jobs that
            # an extension keeps from some claims have ranges of their own.
            models.Index(
                "queue",
                "hold",
                F("priority").desc(),
                "enqueued_at",
                "id",
                name="ojs_job_claim",
                condition=Q(state="available"),
            ),
            # FETCH of the jobs that must run alone, which are few.
            models.Index(
                "queue",
                "hold",
                F("priority").desc(),
                "enqueued_at",
                "id",
                name="ojs_job_isolated",
                condition=Q(state="available", lost_with_others__gte=ISOLATED_AFTER),
            ),
            # Promotion: due jobs, earliest first.
            models.Index("due_at", "id", name="ojs_job_due", condition=Q(state__in=_DUE)),
            # Promotion by queue: when very many jobs are due, each queue gets its share.
            models.Index(
                "queue", "due_at", "id", name="ojs_job_due_queue", condition=Q(state__in=_DUE)
            ),
            # Expiry: few jobs carry a deadline.
            models.Index(
                "expires_at",
                name="ojs_job_expiry",
                condition=Q(
                    expires_at__isnull=False, state__in=[*_DUE, State.AVAILABLE, State.PENDING]
                ),
            ),
            # Rescue and lapse: the active jobs. The lease itself is in no index, so that extending
            # it stays cheap. Limits count the active jobs of a queue without reading the others.
            models.Index("worker_id", "queue", name="ojs_job_active", condition=Q(state="active")),
            # Pruning: each kind of finished job has a range of its own, oldest first. Without the
            # state as a column, a query that finds none would read all jobs that are kept longer.
            models.Index(
                "state",
                "dead_letter",
                "finished_at",
                "id",
                name="ojs_job_finished",
                condition=Q(state__in=_FINISHED),
            ),
            models.Index("finished_at", "id", name="ojs_job_dead", condition=Q(dead_letter=True)),
            # Dead letters that were moved to another queue, by the queue where they ran. They are
            # few.
            models.Index(
                "original_queue",
                name="ojs_job_original_queue",
                condition=Q(original_queue__isnull=False),
            ),
            # Pending jobs, which are few.
            models.Index("id", name="ojs_job_pending", condition=Q(state="pending")),
            # Uniqueness: few jobs have a policy, and a key has few jobs.
            models.Index(
                "unique_key", name="ojs_job_unique", condition=Q(unique_key__isnull=False)
            ),
            # Lineage: the children of a job, oldest first. Most jobs have no parent.
            models.Index(
                "parent_id", "id", name="ojs_job_parent", condition=Q(parent_id__isnull=False)
            ),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=list(State)), name="ojs_job_state"),
            models.CheckConstraint(
                condition=Q(priority__range=(envelope.MIN_PRIORITY, envelope.MAX_PRIORITY)),
                name="ojs_job_priority",
            ),
            models.CheckConstraint(
                condition=~Q(state="active")
                | Q(lease_until__isnull=False, started_at__isnull=False),
                name="ojs_job_active_has_lease",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=_DUE) | Q(due_at__isnull=False),
                name="ojs_job_waiting_has_due_time",
            ),
            models.CheckConstraint(
                condition=Q(state__in=_FINISHED, finished_at__isnull=False)
                | (~Q(state__in=_FINISHED) & Q(finished_at__isnull=True)),
                name="ojs_job_finished_has_time",
            ),
            models.CheckConstraint(
                condition=Q(dead_letter=False) | Q(state="discarded"), name="ojs_job_dead_letter"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.pk} ({self.state})"

    @property
    def retry_policy(self) -> RetryPolicy:
        """The job's retry policy, complete."""
        return retry_policy.of_options(self.options)

    @property
    def queues(self) -> set[str]:
        """Its queue, and the one to which a retry would return it.

        A change needs access to both.
        """
        return {self.queue, self.original_queue or self.queue}

    @staticmethod
    def in_queues(names: Collection[str]) -> models.Q:
        """Return the condition that one of the `queues` of a job is among these."""
        return models.Q(queue__in=names) | models.Q(original_queue__in=names)

    @property
    def spent(self) -> int:
        """Attempts that count against `max_attempts`."""
        return self.attempt - self.returned

    @property
    def workflow_id(self) -> UUID | None:
        """The workflow that it is a step of."""
        return envelope.workflow_of(self.options)

    @property
    def tags(self) -> list[str]:
        """The job's tags, in the order they were given."""
        return list(self.options.get("tags", ()))

    @property
    def waited(self) -> timedelta | None:
        """How long it was available before its latest run, or None if it never ran."""
        if self.started_at is None or self.enqueued_at is None:
            return None
        return elapsed(self.enqueued_at, self.started_at)

    def envelope(self) -> dict[str, Any]:
        """Render the job as its OJS envelope (ojs-core §5), with the errors of earlier runs."""
        errors = []
        # A successful run leaves no attempt, so a first run that went well has no history to query.
        if self.run > 1 or (self.run == 1 and self.state not in _WELL):
            attempts = self.attempts.order_by("id")
            errors = [attempt.as_error() for attempt in attempts if attempt.error]
        return envelope.render(self, errors=errors or None, more=hooks.shown(self))


class DeadLetterJob(Job):
    """A discarded job that is kept for an operator (ojs-dead-letter §3).

    A proxy, so that the admin lists them on a page of their own. The permission to view jobs
    includes these.
    """

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
