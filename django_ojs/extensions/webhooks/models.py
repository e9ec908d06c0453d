"""Webhooks: the subscriptions of other systems to events, and the deliveries to them."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel
from django_ojs.spec.ids import uuid7
from django_ojs.spec.urls import locate


class Webhook(StoredModel):
    """A subscription: the events that are sent to a URL (ojs-webhooks §5.1).

    `cursor` is the position of the last event that was read for it. The secret is not stored: it is
    derived from `salt` and the SECRET_KEY of the project.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    url = models.CharField(verbose_name=_("url"), max_length=2000)
    events = models.JSONField(
        verbose_name=_("events"),
        default=list,
        help_text=_("Types of events, or patterns such as job.* or *."),
    )
    queues = models.JSONField(
        verbose_name=_("queues"),
        default=list,
        blank=True,
        help_text=_("Only events of these queues are sent. Empty: all events."),
    )
    job_types = models.JSONField(
        verbose_name=_("job types"),
        default=list,
        blank=True,
        help_text=_("Only events of these job types are sent. Empty: all events."),
    )
    metadata = models.JSONField(default=dict, blank=True)
    active = models.BooleanField(verbose_name=_("active"), default=True)
    salt = models.CharField(max_length=64, editable=False)
    #: The salts of former secrets, latest first, each with the time until which deliveries are
    #: signed with it as well.
    former_salts = models.JSONField(default=list, editable=False)
    cursor = models.BigIntegerField(default=0, editable=False)
    #: Deliveries in a row that ended without a success.
    failures = models.PositiveIntegerField(verbose_name=_("failures"), default=0, editable=False)
    #: When it was disabled because of its failures.
    disabled_at = models.DateTimeField(verbose_name=_("disabled at"), null=True, editable=False)
    created_at = models.DateTimeField(
        verbose_name=_("created at"), db_default=Now(), editable=False
    )

    class Meta:
        db_table = "ojs_webhook"
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        indexes = [
            models.Index("cursor", name="ojs_webhook_active", condition=Q(active=True)),
        ]

    def __str__(self) -> str:
        # The path and the query may hold a token, and logs show this text.
        found = locate(self.url)
        scheme = self.url.partition("://")[0]
        return f"{scheme}://{found.host}" if found is not None else str(self.pk)


class WebhookDelivery(StoredModel):
    """The delivery of an event to a webhook. It has the id of the job that sends the event."""

    id = models.UUIDField(primary_key=True)
    webhook = models.ForeignKey(Webhook, models.CASCADE, db_index=False, related_name="deliveries")
    event_id = models.UUIDField()
    event_type = models.CharField(max_length=64)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "ojs_webhook_delivery"
        default_permissions = ()
        verbose_name = _("webhook delivery")
        verbose_name_plural = _("webhook deliveries")
        indexes = [
            models.Index(fields=["webhook", "-id"], name="ojs_webhook_delivery_of"),
            models.Index("created_at", name="ojs_webhook_delivery_time"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} to {self.webhook_id}"
