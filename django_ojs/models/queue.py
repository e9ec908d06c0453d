"""The state and the configuration of a queue."""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField


class Queue(StoredModel):
    """A queue with settings of its own.

    A queue needs no row to be used; one without a row has the defaults.
    """

    name = models.CharField(primary_key=True, max_length=255)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    #: When its configuration was last changed.
    updated_at = models.DateTimeField(null=True, blank=True, editable=False)
    paused_at = models.DateTimeField(null=True, blank=True)
    #: Since when it accepts no jobs.
    draining_at = models.DateTimeField(null=True, blank=True)
    #: Since when it is above its warning threshold; each change is an event.
    warned_at = models.DateTimeField(null=True, blank=True, editable=False)
    #: The times of its episode of fullness, with hysteresis; see
    #: `backpressure.operations.episodes`.
    near_full_at = models.DateTimeField(null=True, blank=True, editable=False)
    full_at = models.DateTimeField(null=True, blank=True, editable=False)
    eased_at = models.DateTimeField(null=True, blank=True, editable=False)
    #: The rules that its claims apply, by the bits of their extensions (`claim_rules.ClaimRule`).
    rules = models.BigIntegerField(default=0, db_default=0, editable=False)
    #: Its own configuration, in the form of the admin API (see `spec.queue_config`).
    config = StoredJSONField(default=dict, blank=True)

    class Meta:
        db_table = "ojs_queue"
        default_permissions = ("view",)
        verbose_name = _("queue")
        verbose_name_plural = _("queues")

    def __str__(self) -> str:
        return self.name

    @property
    def paused(self) -> bool:
        """Whether FETCH returns none of its jobs."""
        return self.paused_at is not None


class Overview(Queue):
    """The overview page of the admin, and its permission.

    A proxy, because `dumpdata` would read the table of any other kind of model.
    """

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name = _("overview")
        verbose_name_plural = _("overview")

    def __str__(self) -> str:
        return "Overview"
