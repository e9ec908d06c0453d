"""The names of queues and job types that callers over HTTP made known."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel


class NameKind(models.TextChoices):
    QUEUE = "queue", _("Queue")
    TYPE = "type", _("Job type")


class KnownName(StoredModel):
    """A name, and the caller that sent it first, or no caller if it was known before.

    HTTP_MAX_NAMES limits how many names a caller may have.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=8, choices=NameKind.choices)
    name = models.CharField(max_length=255)
    #: A long id is stored as its digest: no database indexes a text of any length.
    principal = models.CharField(max_length=255, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        db_table = "ojs_known_name"
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["kind", "name"], name="ojs_known_name_key")]
        indexes = [models.Index("principal", "kind", name="ojs_known_name_principal")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
