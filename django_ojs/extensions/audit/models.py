"""The audit trail: what operators have done."""

from datetime import datetime
from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from django_ojs.models.actor_kind import ActorKind
from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField
from django_ojs.spec import ids


class AuditEntry(StoredModel):
    """One change by an operator, stored in the transaction of the change.

    It holds neither secrets nor arguments of jobs.
    """

    # UUIDv7s are in the order of their times, so that every index below serves a range of days.
    id = models.UUIDField(primary_key=True, default=ids.uuid7, editable=False)
    actor_kind = models.CharField(max_length=16, choices=ActorKind.choices)
    actor = models.CharField(max_length=255)
    source_ip = models.CharField(max_length=64, blank=True)
    #: The object, and what is done to it, such as `queue.paused`.
    action = models.CharField(max_length=64)
    #: The name of a model of this package, and its key.
    object_type = models.CharField(max_length=32)
    object_id = models.CharField(max_length=255, blank=True)
    #: For each field that changed: its old value and its new one.
    changes = StoredJSONField(default=dict, blank=True)
    #: Anything else that says what was done, such as the number of jobs.
    detail = StoredJSONField(default=dict, blank=True)

    class Meta:
        db_table = "ojs_audit_entry"
        default_permissions = ("view",)
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit trail")
        indexes = [
            models.Index("actor", "id", name="ojs_audit_entry_actor"),
            models.Index("action", "id", name="ojs_audit_entry_action"),
            models.Index("object_id", "id", name="ojs_audit_entry_object"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.object_id} by {self.actor}"

    @property
    def time(self) -> datetime:
        """When it was done."""
        return ids.time_of(self.id)

    @property
    def rows(self) -> list[tuple[str, Any, Any]]:
        """The changed fields, each with its old value and its new one."""
        return [(name, *pair) for name, pair in self.changes.items()]
