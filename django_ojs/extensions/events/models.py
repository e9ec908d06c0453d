"""The recorded events, append-only; the setting KEEP_EVENTS names their types."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField


class Event(StoredModel):
    """One event (ojs-events §3), stored in the transaction of its change.

    `id` is assigned before the commit, so it does not have the order in which events became
    visible. `position` does: it is assigned to committed events, and a reader that follows it
    misses none.
    """

    id = models.BigAutoField(primary_key=True)
    position = models.BigIntegerField(null=True, unique=True)
    event_id = models.UUIDField()
    type = models.CharField(max_length=64)
    time = models.DateTimeField(db_default=Now())
    subject = models.CharField(
        max_length=255,
        help_text=_(
            "The id of a job, workflow or worker, the name of a queue or cron job, or a limit key."
        ),
    )
    queue = models.CharField(max_length=255, blank=True)
    data = StoredJSONField(default=dict)

    class Meta:
        db_table = "ojs_event"
        default_permissions = ("view",)
        verbose_name = _("event")
        verbose_name_plural = _("events")
        indexes = [
            # For the few events that have no position yet.
            models.Index(
                "id", name="ojs_event_no_position", condition=models.Q(position__isnull=True)
            ),
            models.Index("subject", "id", name="ojs_event_subject"),
            models.Index("time", name="ojs_event_time"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.subject}"
