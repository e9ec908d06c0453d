"""The page of a job type: its runs, latest errors, queues and workers."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext

from django_ojs.admin import enqueue, payload_permission
from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.finding_remedies import jobs, remedies
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.extensions.statistics import job_type, rollups
from django_ojs.extensions.statistics.admin_charts import history_charts, release_markers
from django_ojs.handlers import get_handler
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.jobs import redaction
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.workers import registry
from django_ojs.reports import findings
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State

#: How many workers are named.
_MAX_WORKERS = 20


def type_view(page: OperatorModelAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page of the type that the query string names."""
    page.check_view_permission(request)
    type = request.GET.get("type", "")
    if not type or "\0" in type:
        return HttpResponseRedirect(page.url("changelist"))
    rollups.flush_if_due()
    payload = payload_permission.has_permission(request) and not redaction.hides("message")
    with timed_queries() as query:
        context = _context(page, request, query, type, payload=payload)
    context["unread"] = query.unread
    context["enqueue_url"] = enqueue.url(page, request, type=type)
    return page.render(request, "job_type", _("Type %(type)s") % {"type": type}, context)


def _context(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, type: str, *, payload: bool
) -> dict[str, Any]:
    hour = query(gettext_noop("last hour"), lambda: job_type.last_hour(type))
    week = query(gettext_noop("last week"), lambda: job_type.last_week(type))
    queues = query(gettext_noop("queues"), lambda: job_type.queues(type))
    names = [each.queue for each in queues or ()]
    workers = query(gettext_noop("workers"), lambda: registry.workers_of_type(type, names))
    since = timezone.now() - job_type.WEEK
    deployed = query(gettext_noop("releases"), lambda: release_markers(since)) or []
    errors = query(
        gettext_noop("latest errors"), lambda: job_type.latest_errors(type, by_message=payload)
    )
    periods = (
        (_("Hour"), hour),
        (_("Day"), None if week is None else job_type.last_day(week)),
        (_("Week"), week),
    )
    return {
        "type": type,
        "findings": [
            (found, remedies(page, request, found))
            for found in query(gettext_noop("findings"), lambda: findings.of_type(type)) or ()
        ],
        "handled_here": get_handler(type) is not None,
        "workers": None if workers is None else _workers(workers),
        "periods": [
            (name, None if points is None else job_type.runs(points)) for name, points in periods
        ],
        "hour": history_charts(hour, happened=deployed),
        "week": history_charts(week, happened=deployed),
        "queues": queues,
        "errors": None
        if errors is None
        else [(runs, str(AttemptOutcome(runs.outcome).label)) for runs in errors],
        "buttons": _links(page, request, type),
    }


def _links(page: OperatorModelAdmin, request: HttpRequest, type: str) -> list[Button]:
    wanted: Sequence[tuple[str, tuple[State, ...]]] = (
        (_("Its jobs"), ()),
        (pgettext("jobs", "Failed"), (State.RETRYABLE, State.DISCARDED)),
        (pgettext("jobs", "Running"), (State.ACTIVE,)),
    )
    try:
        return [
            button
            for label, states in wanted
            for button in jobs(page, request, label, JobFilter(type=type, states=states))
        ]
    except OJSError:  # The name contains something that a search cannot express.
        return []


def _workers(found: registry.WorkersOfType) -> list[tuple[str, list[str], int]]:
    """Return groups of workers: what they have in common, some ids, and how many more there are."""
    groups = (
        (_("Running workers with a handler"), found.having),
        (_("Workers of its queues without a handler, which postpone its jobs"), found.lacking),
        (_("Workers of its queues that do not report their types"), found.unknown),
    )
    return [
        (label, ids[:_MAX_WORKERS], max(0, len(ids) - _MAX_WORKERS)) for label, ids in groups if ids
    ]
