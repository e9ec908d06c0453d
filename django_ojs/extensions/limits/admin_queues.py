"""The limits of a queue, on its page."""

from typing import Any, Final

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_ojs.admin import formatting
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.panels import Panel
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.extensions.limits.rate_limit import Rate, RateLimit
from django_ojs.operations.queues import QueueStatus


def _of_queue(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, queue: QueueStatus
) -> dict[str, Any] | None:
    limits = _limits(queue.config.part(RateLimit))
    return {"limits": limits} if limits else None


def _limits(limit: RateLimit | None) -> list[str]:
    """Return the limits of a queue in words."""
    if limit is None:
        return []
    words = (
        []
        if limit.concurrency is None
        else [_("%(count)s at once") % {"count": formatting.grouped(limit.concurrency)}]
    )
    words += [_rate(rate) for rate in limit.windows]
    return words + [_("%(rate)s, evenly") % {"rate": _rate(rate)} for rate in limit.throttles]


def _rate(rate: Rate) -> str:
    return _("%(count)s per %(duration)s") % {
        "count": formatting.grouped(rate.limit),
        "duration": formatting.duration(rate.period_ms / 1000),
    }


QUEUE_LIMITS: Final = Panel(
    kind=QueueStatus, read=_of_queue, template="django_ojs/admin/queue_limits.html", place=-1
)
