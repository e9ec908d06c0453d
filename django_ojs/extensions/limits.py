"""Limits on running and on starting jobs (ojs-rate-limiting): of queues, and by key."""

from django_ojs.extension import ClaimRule, Extension, Hooks, RuledClaim
from django_ojs.models.limit import BY_KEY
from django_ojs.spec.queue_config import LIMITS
from django_ojs.storage.dialects.rows import ClaimRequest


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
    number = BY_KEY

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(claim_rule=KeyLimits())


# What they do is imported by the first claim of a queue that has limits.


class QueueLimits(ClaimRule):
    """The rule of queues that have limits of their own."""

    fields = LIMITS

    def begin(self, request: ClaimRequest) -> RuledClaim:
        """Lock the limits of the queue, and read how much room they have."""
        from django_ojs.storage import queue_limits

        return queue_limits.begin(request)

    def is_full(self, queue: str) -> bool:
        """Say whether a queue is at its limits."""
        from django_ojs.storage import queue_limits

        return queue_limits.is_full(queue)


class KeyLimits(ClaimRule):
    """The rule of queues that have had a job with a limit by key."""

    job_field = "rate_limit"

    def begin(self, request: ClaimRequest) -> RuledClaim:
        """Open the held jobs of keys that have got room."""
        from django_ojs.storage import key_limits

        return key_limits.begin(request)

    def is_full(self, queue: str) -> bool:
        """Say whether a queue of which all jobs were held still has no other."""
        from django_ojs.storage import key_limits

        return key_limits.is_full(queue)

    def may_open(self) -> str:
        """Return the condition that keys may have got room."""
        from django_ojs.storage import limit_journal

        return limit_journal.due_condition()
