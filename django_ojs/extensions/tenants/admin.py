"""The tenants on the page of a queue."""

from typing import Any, Final

from django.http import HttpRequest
from django.utils.translation import gettext_noop

from django_ojs.admin import payload_permission
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.panels import Panel
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.extensions.tenants.operations import TenantStatus, busiest
from django_ojs.extensions.tenants.queue_fields import has_tenants
from django_ojs.extensions.tenants.spec import TenantFairness
from django_ojs.operations.jobs.redaction import HIDDEN, redacted
from django_ojs.operations.queues import QueueStatus

MAX_TENANTS: Final = 10


def _of_queue(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, queue: QueueStatus
) -> dict[str, Any] | None:
    if not has_tenants(queue.config):
        return None
    visible = _may_see(request)
    found: list[TenantStatus] | None = []
    if visible:
        found = query(gettext_noop("tenants"), lambda: busiest(queue, limit=MAX_TENANTS))
    return {
        "visible": visible,
        "tenants": found,
        "most": MAX_TENANTS,
        "has_turns": queue.config.part(TenantFairness) is not None,
    }


def _may_see(request: HttpRequest) -> bool:
    # The tenant of a job is in its metadata.
    name = "tenant_id"
    return payload_permission.may_see(request) and redacted({name: ""})[name] != HIDDEN


QUEUE_TENANTS: Final = Panel(
    kind=QueueStatus, read=_of_queue, template="django_ojs/admin/queue_tenants.html"
)
