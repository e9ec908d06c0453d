"""The API keys, for programs that use the HTTP API."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel


class ApiKey(StoredModel):
    """A key of a program. The secret is shown once; what is stored is its hash.

    `prefix` is the part of the key that is not secret: it identifies the row, also in logs.
    `principal` is the prefix of the first key of a rotation: a key and those that replace it are
    the same principal.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(
        verbose_name=_("name"),
        max_length=100,
        help_text=_("The program that uses the key, and its purpose."),
    )
    prefix = models.CharField(verbose_name=_("prefix"), max_length=16, unique=True, editable=False)
    principal = models.CharField(max_length=16, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    scopes = models.JSONField(
        verbose_name=_("scopes"),
        default=list,
        help_text=_("read, producer, worker, operator or admin."),
    )
    queues = models.JSONField(
        verbose_name=_("queues"),
        default=list,
        blank=True,
        help_text=_("The queues that the key may use; empty: all queues."),
    )
    created_at = models.DateTimeField(
        verbose_name=_("created at"), db_default=Now(), editable=False
    )
    expires_at = models.DateTimeField(verbose_name=_("expires at"), null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(
        verbose_name=_("last used at"), null=True, blank=True, editable=False
    )
    rejected_at = models.DateTimeField(
        verbose_name=_("rejected at"),
        null=True,
        blank=True,
        editable=False,
        help_text=_("Its last use after it had expired or was revoked."),
    )

    class Meta:
        db_table = "ojs_api_key"
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"
