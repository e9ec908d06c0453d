"""Limits on running and on starting jobs (ojs-rate-limiting): of queues, and by key."""

from django_ojs.extension import Extension, Hooks
from django_ojs.storage import limit_journal
from django_ojs.storage.key_limits import KeyLimits
from django_ojs.storage.queue_limits import QueueLimits


class QueueLimitsExtension(Extension):
    """Limits queues."""

    name = "limits of queues"
    #: Before the limits by key: a job of a queue that is at its limit waits for that alone.
    number = 12

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(claim_rule=QueueLimits())


class KeyLimitsExtension(Extension):
    """Limits the jobs of a key."""

    name = "limits by key"
    number = limit_journal.NUMBER

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(claim_rule=KeyLimits())
