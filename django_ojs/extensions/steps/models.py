"""The steps of jobs, and the signals for which they wait."""

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from django_ojs.conf import settings
from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField
from django_ojs.spec import json

#: The most characters of the name of a step or of a signal, and of the key of a signal.
MAX_NAME = 200

#: The member with the attempts that count against `max_attempts`, in the JSON of a job that was
#: given back. It has a prefix, because the specification does not define it (ojs-core §11.10).
SPENT = "x_spent_attempts"


class StepKind(models.TextChoices):
    """What a step does."""

    RUN = "run", _("Run")
    ATOMIC = "atomic", _("Transaction")
    SLEEP = "sleep", _("Sleep")
    WAIT = "wait", _("Wait for a signal")
    GATHER = "gather", _("Wait for jobs")
    VERSION = "version", _("Version")


class StepStatus(models.TextChoices):
    """The outcome of a step."""

    DONE = "done", _("Done")
    #: It sleeps, waits for a signal or jobs, or will be tried again; the job has no later step.
    WAITING = "waiting", _("Waiting")
    TIMED_OUT = "timed_out", _("Timed out")
    FAILED = "failed", _("Failed")


class Step(StoredModel):
    """One step of a job. Its times are by the clock of the database.

    The steps of a job are numbered from 0 in the order in which its handler took them. The primary
    key keeps two runs from storing the same step, whatever else goes wrong.
    """

    pk = models.CompositePrimaryKey("job_id", "number")
    #: It is not a foreign key, so that jobs can be deleted after this app was removed from a site.
    job_id = models.UUIDField()
    number = models.PositiveIntegerField()
    name = models.CharField(max_length=MAX_NAME + 10)
    kind = models.CharField(max_length=8, choices=StepKind.choices)
    outcome = models.CharField(max_length=10, choices=StepStatus.choices, default=StepStatus.DONE)
    #: The result as JSON text, because databases may change the values of a JSON column.
    result = models.TextField(null=True, blank=True)  # noqa: DJ001  # NULL: it has none
    #: The error of the last attempt that failed.
    error = StoredJSONField(null=True, blank=True)
    #: How often its function was called.
    attempts = models.PositiveIntegerField(default=0)
    #: When it stops waiting at the latest: the end of a sleep, the timeout of a wait, the next try.
    until = models.DateTimeField(null=True, blank=True)
    signal = models.CharField(max_length=MAX_NAME, null=True, blank=True)  # noqa: DJ001  # NULL: no wait
    key = models.CharField(max_length=MAX_NAME, null=True, blank=True)  # noqa: DJ001  # as above
    #: The signal that it got.
    signal_id = models.BigIntegerField(null=True, blank=True)
    #: The run of the job that has stored it last.
    run = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "ojs_step"
        default_permissions = ()
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        indexes = [
            # A signal finds the steps that wait for it.
            models.Index(
                "signal",
                "key",
                name="ojs_step_waiting",
                condition=Q(outcome="waiting", signal__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.outcome})"

    @property
    def value(self) -> Any:
        """The result."""
        return None if self.result is None else read(self.result)


class StepSignal(StoredModel):
    """Something that jobs may wait for. Each job that waits for it, now or later, gets it once."""

    name = models.CharField(max_length=MAX_NAME)
    key = models.CharField(max_length=MAX_NAME)
    #: The payload as JSON, like the result of a step.
    payload = models.TextField()
    sent_at = models.DateTimeField()

    class Meta:
        db_table = "ojs_step_signal"
        default_permissions = ()
        verbose_name = _("signal")
        verbose_name_plural = _("signals")
        indexes = [
            models.Index("name", "key", "id", name="ojs_step_signal_key"),
            models.Index("sent_at", name="ojs_step_signal_age"),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.key}"


def read(text: str) -> Any:
    """Return a stored JSON text as the value that it was."""
    return json.loads_stored(text, exact_integers=settings().exact_integers)
