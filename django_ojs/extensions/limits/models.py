"""What limits store: the starts that rates count, pauses, overrides, and the keys to check."""

from typing import Final

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField
from django_ojs.spec import hold

#: The number of the extension of limits by key, which is also its bit in `Queue.rules`.
BY_KEY: Final = 14

#: The values of `Job.hold` for jobs with a key, written as 14 and 78 in the SQL files.
OPEN: Final = hold.open_to(BY_KEY)
HELD: Final = hold.held_by(BY_KEY)


class LimitedQueue(StoredModel):
    """The starts of a queue with a rate (see `rate_limit.Starts`)."""

    queue = models.CharField(primary_key=True, max_length=255)
    starts = StoredJSONField(default=dict)

    class Meta:
        db_table = "ojs_limited_queue"
        default_permissions = ()

    def __str__(self) -> str:
        return self.queue


class LimitKey(StoredModel):
    """What is stored about a limit key: the starts of its jobs, its pause, and its override."""

    key = models.CharField(verbose_name=_("key"), primary_key=True, max_length=255)
    #: See `rate_limit.Starts`.
    starts = StoredJSONField(default=dict)
    #: When no rate needs the starts any more.
    expires_at = models.DateTimeField()
    #: No job of the key starts before this time, because a handler or an operator paused it.
    paused_until = models.DateTimeField(null=True)
    #: When the pause began; it stays the same if the pause is made longer.
    paused_at = models.DateTimeField(null=True)
    #: Limits that replace the limits of the jobs until a time, or until they are removed.
    override = StoredJSONField(default=dict)
    override_until = models.DateTimeField(verbose_name=_("override until"), null=True)
    #: Since when jobs of the key have been held, by which limit, and since when none is held.
    limited_since = models.DateTimeField(null=True)
    limited_by = models.CharField(max_length=16, blank=True)
    eased_at = models.DateTimeField(null=True)
    #: The time for which a claim last rescheduled a job of the key; the next one is due after it.
    rescheduled_until = models.DateTimeField(null=True)
    #: How many jobs claims have dropped at the limit, with less than an hour between two, and when
    #: the last one was.
    dropped = models.PositiveBigIntegerField(default=0)
    dropped_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "ojs_limit_key"
        default_permissions = ("view",)
        verbose_name = _("limit key")
        verbose_name_plural = _("limit keys")
        indexes = [
            models.Index("expires_at", name="ojs_limit_key_expires"),
            # For the keys at their limit.
            models.Index("limited_by", name="ojs_limit_key_by", condition=~models.Q(limited_by="")),
            # For the keys whose jobs were dropped.
            models.Index(
                "dropped_at",
                name="ojs_limit_key_dropped",
                condition=models.Q(dropped_at__isnull=False),
            ),
            # For the keys that are paused.
            models.Index(
                "paused_until",
                name="ojs_limit_key_paused",
                condition=models.Q(paused_until__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def is_in_force(self) -> bool:
        """Whether it has an override that has not ended."""
        until = self.override_until
        return bool(self.override) and (until is None or until > timezone.now())

    @property
    def is_paused(self) -> bool:
        """Whether it has a pause that has not ended."""
        return self.paused_until is not None and self.paused_until > timezone.now()


class LimitCheck(StoredModel):
    """The journal of keys whose held jobs may be able to start from a time on.

    A trigger appends a row when a job of the key ends, or is no longer active.
    """

    id = models.BigAutoField(primary_key=True)
    limit_key = models.CharField(max_length=255)
    due_at = models.DateTimeField()

    class Meta:
        db_table = "ojs_limit_check"
        default_permissions = ()
        indexes = [
            models.Index("due_at", "limit_key", name="ojs_limit_check_due"),
            models.Index("limit_key", "due_at", name="ojs_limit_check_key"),
        ]

    def __str__(self) -> str:
        return f"{self.limit_key} {self.due_at}"
