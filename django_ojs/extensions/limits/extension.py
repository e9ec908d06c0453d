"""Limits on running and on starting jobs (ojs-rate-limiting): of queues, and by key."""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model
from django.utils import timezone

from django_ojs.claim_rules import ClaimRule, RuledClaim, Waits
from django_ojs.extension import TICK, Attribute, Declared, DueStep, Extension, Hooks
from django_ojs.extensions.limits import rate_limit_policy
from django_ojs.extensions.limits.limit_key_events import of_limit_key
from django_ojs.extensions.limits.models import BY_KEY, LimitKey
from django_ojs.extensions.limits.queue_fields import FIELDS
from django_ojs.hooks import publish
from django_ojs.spec.failure import Failure
from django_ojs.spec.published import EventType
from django_ojs.spec.times import format_timestamp
from django_ojs.storage.dialects.rows import ClaimRequest

if TYPE_CHECKING:
    from django_ojs.finding import Finding


class QueueLimitsExtension(Extension):
    """Limits how many jobs of a queue run and start."""

    name = "limits of queues"
    #: These limits come before those by key: a job of a queue at its limit waits only for the
    #: queue.
    number = 12
    queue_fields = FIELDS

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(claim_rule=QueueLimits())

    def panels(self) -> Sequence[Any]:
        """Return the limits of a queue."""
        from django_ojs.extensions.limits.admin_queues import QUEUE_LIMITS

        return (QUEUE_LIMITS,)

    def routes(self) -> Sequence[Any]:
        """Return the route of the limits of a queue."""
        from django_ojs.extensions.limits import views
        from django_ojs.http.routing import route

        path = "v1/admin/queues/<str:name>/rate-limit"
        return (route(path, views.QueueRateLimit, "ojs-admin-queue-rate-limit"),)

    def due_steps(self) -> Sequence[DueStep]:
        """Delete the starts of queues that no rate needs any more."""
        from django_ojs.extensions.limits import pruning

        pruner = pruning.StartsPruner()
        return (DueStep(run=pruner.prune, interval=60.0, batch=pruning.WALK),)


class KeyLimitsExtension(Extension):
    """Limits how many jobs of a key run and start."""

    name = "limits by key"
    number = BY_KEY
    attributes = (
        Attribute(
            name="rate_limit",
            check=rate_limit_policy.check,
            stored_with=rate_limit_policy.stored_with,
            beyond_queue=rate_limit_policy.beyond_queue,
        ),
    )
    schema = Path(__file__).parent / "schema"
    openapi = Path(__file__).with_name("openapi.yaml")

    def hooks(self) -> Hooks:
        """Return the hooks; no setting changes them."""
        return Hooks(
            claim_rule=KeyLimits(), holds=_holds, pause_asked=_pause, hide_in_key=_hide_in_key
        )

    def catch_up(self, connection: BaseDatabaseWrapper) -> None:
        """Let the limits be applied to the jobs and queues that were stored without them."""
        from django_ojs.extensions.limits import claims_by_key
        from django_ojs.operations import queue_rows

        claims_by_key.catch_up()
        # The maintenance does this too, but claims may come first.
        queue_rows.put_rules_right()

    def due_steps(self) -> Sequence[DueStep]:
        """Open held jobs, and delete rows of keys that are no longer needed."""
        from django_ojs.extensions.limits import claims_by_key, limit_journal

        return (
            DueStep(
                run=limit_journal.open_due,
                interval=TICK,
                batch=limit_journal.KEYS_AT_ONCE,
                when=limit_journal.due_condition,
            ),
            # This reads all waiting jobs with a limit by key, so it runs rarely: it repairs only
            # errors that should not happen.
            DueStep(run=claims_by_key.recheck, interval=600.0, batch=sys.maxsize),
            DueStep(run=claims_by_key.prune, interval=60.0),
        )

    def may_find(self) -> str:
        """Return the condition that a key dropped a job in the last hour, or is paused."""
        from django_ojs.extensions.limits.findings import condition

        return condition()

    def findings(self) -> Sequence["Finding"]:
        """Return the limit keys that drop jobs or are paused."""
        from django_ojs.extensions.limits import findings

        return findings.found()

    def subcommands(self) -> Sequence[Any]:
        """Return `limits`."""
        from django_ojs.extensions.limits import command_line as limits

        return limits.SUBCOMMANDS

    def routes(self) -> Sequence[Any]:
        """Return the routes of limit keys."""
        from django_ojs.extensions.limits import views
        from django_ojs.http.routing import route

        return (
            route("v1/rate-limits", views.RateLimits, "ojs-rate-limits"),
            route("v1/rate-limits/<str:key>", views.RateLimitDetail, "ojs-rate-limit"),
        )

    def manifest(self) -> Sequence[Declared]:
        """Declare rate limiting."""
        return (Declared(official="rate-limiting", capability="rate_limiting"),)

    def pages(self) -> Mapping[type[Model], str]:
        """Return the pages of its model."""
        return {LimitKey: "django_ojs.extensions.limits.admin.LimitKeyAdmin"}

    def metrics(self, within: Collection[str] | None) -> Iterable[Any]:
        """Return how many keys hold jobs."""
        from django_ojs.extensions.limits.metrics import metrics

        return metrics(within)


def _holds(keys: Collection[UUID]) -> dict[UUID, int]:
    """Return the jobs that only claims with this rule may start."""
    from django_ojs.extensions.limits import claims_by_key

    return claims_by_key.holds(keys)


def _hide_in_key(key: str, is_hidden: Callable[[str], bool], replacement: str) -> str | None:
    """Hide the arguments in a key that was made from the template of a handler."""
    from django_ojs.handler_registry import registry

    templates = (
        (rate_limit_policy.RateLimitPolicy.of(policy).key, handler.type)
        for handler in registry.handlers.values()
        if (policy := handler.defaults.rate_limit) is not None
    )
    return rate_limit_policy.hide_arguments(key, templates, is_hidden, replacement)


def _pause(job: Any, failure: Failure) -> None:
    """Pause the key of a failed job for the duration that the failure names."""
    key = rate_limit_policy.stored_key(job)
    if key is None:
        return
    from django_ojs.extensions.limits import limit_journal

    pause = failure.pause
    if limit_journal.pause(key, pause):
        publish(
            EventType.RATE_LIMIT_DYNAMIC_ADJUSTED,
            of_limit_key,
            key,
            until=format_timestamp(timezone.now() + pause),
            reason=failure.type,
        )


# The modules that implement the rules are imported by the first claim from a queue with limits.


class QueueLimits(ClaimRule):
    """The rule for queues that have limits of their own."""

    fields = frozenset(FIELDS.checks)

    def begin(self, request: ClaimRequest) -> RuledClaim:
        """Lock the limits of the queue, and read how much room they have."""
        from django_ojs.extensions.limits import claims_by_queue

        return claims_by_queue.begin(request)

    def full_among(self, queues: Collection[str]) -> Collection[str]:
        """Return which of these queues are at their limits."""
        from django_ojs.extensions.limits import claims_by_queue

        return claims_by_queue.full_among(queues)

    def waits_for(self, job: Any, may_see: bool) -> Waits | None:
        """Return which limit of its queue a job waits for."""
        from django_ojs.extensions.limits import claims_by_queue

        return claims_by_queue.waits_for(job.queue)


class KeyLimits(ClaimRule):
    """The rule for queues that have had a job with a limit by key."""

    def begin(self, request: ClaimRequest) -> RuledClaim:
        """Open the held jobs of keys that have room again."""
        from django_ojs.extensions.limits import claims_by_key

        return claims_by_key.begin(request)

    def full_among(self, queues: Collection[str]) -> Collection[str]:
        """Return in which of these queues all available jobs are still held."""
        from django_ojs.extensions.limits import claims_by_key

        return claims_by_key.full_among(queues)

    def waits_for(self, job: Any, may_see: bool) -> Waits | None:
        """Return which limit of its key a job waits for."""
        from django_ojs.extensions.limits import limit_key_use

        return limit_key_use.waits_for(job, may_see)

    def may_open(self) -> str:
        """Return the SQL condition that keys may have room again."""
        from django_ojs.extensions.limits import limit_journal

        return limit_journal.due_condition()
