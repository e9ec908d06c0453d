"""The outbox: jobs that are enqueued here and sent to a destination."""

from enum import StrEnum

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel


class Delivery(models.TextChoices):
    PENDING = "pending", _("Pending")
    SENT = "sent", _("Sent")
    REJECTED = "rejected", _("Rejected")


class HoldsBack(StrEnum):
    """The jobs that wait behind one that was postponed, because none may overtake it."""

    DESTINATION = ""
    QUEUE = "queue"
    #: The jobs of its tenant in its queue wait.
    TENANT = "tenant"


class OutboxEntry(StoredModel):
    """A job that is to be sent (ojs-framework-adapters §6.3), stored in its caller's transaction.

    `id` is assigned before the commit; `position`, assigned to committed rows, is the order of
    sending. `envelope` is exactly the JSON text that is sent.
    """

    id = models.BigAutoField(primary_key=True)
    position = models.BigIntegerField(null=True, unique=True, editable=False)
    job_id = models.UUIDField(verbose_name=_("job id"), unique=True)
    destination = models.CharField(verbose_name=_("destination"), max_length=32)
    type = models.CharField(verbose_name=_("type"), max_length=255)
    queue = models.CharField(verbose_name=_("queue"), max_length=255)
    tenant_id = models.CharField(max_length=255, editable=False)
    # It is computed from the arguments as the caller gave them, before a middleware changed them.
    unique_key = models.CharField(max_length=64, null=True, editable=False)  # noqa: DJ001  # NULL without a policy
    envelope = models.TextField()
    state = models.CharField(
        verbose_name=_("state"), max_length=16, choices=Delivery, default=Delivery.PENDING
    )
    attempts = models.PositiveIntegerField(verbose_name=_("attempts"), default=0)
    error_code = models.CharField(verbose_name=_("error code"), max_length=64, blank=True)
    error_message = models.CharField(verbose_name=_("error message"), max_length=1000, blank=True)
    created_at = models.DateTimeField(verbose_name=_("created at"), db_default=Now())
    next_try_at = models.DateTimeField(verbose_name=_("next try at"), null=True)
    # Which jobs behind this one wait until `next_try_at` as well.
    holds_back = models.CharField(max_length=8, blank=True, default="", editable=False)
    sent_at = models.DateTimeField(verbose_name=_("sent at"), null=True)

    class Meta:
        db_table = "ojs_outbox"
        default_permissions = ("view",)
        verbose_name = _("outbox entry")
        verbose_name_plural = _("outbox")
        permissions = [("requeue_outboxentry", "Can send rejected jobs of the outbox again")]
        indexes = [
            # The few rows without a position.
            models.Index("id", name="ojs_outbox_no_position", condition=Q(position__isnull=True)),
            # The next row of a destination, and of one of its queues.
            models.Index(
                "destination", "position", name="ojs_outbox_next", condition=Q(state="pending")
            ),
            models.Index(
                "destination",
                "queue",
                "position",
                name="ojs_outbox_next_of_queue",
                condition=Q(state="pending"),
            ),
            # The few rows that hold back a queue or a tenant.
            models.Index(
                "destination",
                "queue",
                name="ojs_outbox_holds_back",
                condition=Q(state="pending") & ~Q(holds_back=""),
            ),
            # Pruning.
            models.Index("sent_at", name="ojs_outbox_sent", condition=Q(state="sent")),
            models.Index("created_at", name="ojs_outbox_rejected", condition=Q(state="rejected")),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.job_id}"
