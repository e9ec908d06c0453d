"""Searches of all jobs in the background: started from the list of jobs, with a page each."""

from dataclasses import replace
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.urls import NoReverseMatch
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_ojs.admin import job_list, payloads
from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.bulk_actions import bulk_buttons
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.models import BulkOperation
from django_ojs.models.bulk_operation import BulkActionName, BulkState
from django_ojs.operations.jobs import background_search, bulk_operations, search_query
from django_ojs.operations.jobs.background_search import FoundJobs
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.search_access import permitted
from django_ojs.spec.scopes import Scope

PER_PAGE: Final = 50


def start_url(page: OperatorModelAdmin, which: JobFilter) -> str:
    """Return where a search is started; none for a filter that matches every job."""
    if which.empty:
        return ""
    try:
        return page.url("search", model="bulkoperation")
    except NoReverseMatch:  # A site without the pages of bulk operations.
        return ""


def start_view(page: OperatorModelAdmin, request: HttpRequest) -> HttpResponse:
    """Start the search of a text, and redirect to its page. Every user who may see jobs may."""
    if not page.has_view_permission(request):
        raise PermissionDenied
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    parsed = search_query.parse(request.POST.get("q", ""))
    search = permitted(parsed, payload=payloads.has_permission(request))
    problems = search.errors
    if search.filter is not None:
        try:
            started = background_search.start(search.filter, by=request.user.get_username())
        except background_search.NotStarted as error:
            problems = [str(error)]
        else:
            return HttpResponseRedirect(page.url("change", started.pk))
    for problem in problems:
        page.message_user(request, problem, "ERROR")
    return HttpResponseRedirect(page.return_url(request))


def stop_view(page: OperatorModelAdmin, request: HttpRequest) -> HttpResponse:
    """Stop a search. Its user may do this, and operators."""
    if not page.has_view_permission(request):
        raise PermissionDenied
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    search = page.get_object(request, request.POST.get("key", ""))
    if search is None or search.action != BulkActionName.SEARCH:
        raise Http404
    if not _may_stop(page, request, search):
        raise PermissionDenied
    if bulk_operations.stop(search.pk, by=request.user.get_username()):
        page.message_user(request, _("Stopped. What it has found is below."), "SUCCESS")
    else:
        page.message_user(request, _("The search has already ended."), "WARNING")
    return HttpResponseRedirect(page.return_url(request))


def _may_stop(page: OperatorModelAdmin, request: HttpRequest, search: BulkOperation) -> bool:
    is_own = search.ordered_by == request.user.get_username()
    return is_own or page.has_scope(request, Scope.OPERATOR)


def object_page(
    page: OperatorModelAdmin, request: HttpRequest, search: BulkOperation, context: dict[str, Any]
) -> HttpResponse:
    """Return the page of a search: how far it is, and the jobs it has found."""
    text = request.GET.get("after", "")
    after = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
    found: FoundJobs | None = None
    rows: list[job_list.JobRow] = []
    with timed_queries() as query:
        if not context["hidden"]:
            found, rows = _found(query, request, search, after)
    stop = Button(
        label=_("Stop"),
        url=page.url("stop_search"),
        destructive=True,
        needs_confirmation=False,
        key=str(search.pk),
    )
    may_stop = context["running"] and _may_stop(page, request, search)
    which: JobFilter = context["which"]
    for_all = (
        [] if context["hidden"] else bulk_buttons(page, request, which, what=_("all matching"))
    )
    expected = max(search.expected or 0, search.jobs_read)
    return page.render(
        request,
        "background_search",
        str(search),
        {
            **context,
            "rows": rows,
            "found": found,
            "started": bool(after),
            "expected": expected,
            "share": 1.0 if search.state == BulkState.DONE else search.jobs_read / (expected or 1),
            "is_full": search.done >= bulk_operations.MAX_FOLLOWED,
            "limit": bulk_operations.MAX_FOLLOWED,
            "forgotten": bool(search.done) and found is not None and not (rows or found.deleted),
            "search_url": start_url(page, which),
            "any_state": job_list.filter_query(
                replace(which, states=(), states_excluded=None, dead_letter=None)
            ),
            "buttons": [stop] if may_stop else [],
            "bulk_buttons": for_all,
            "unread": query.unread,
        },
    )


def _found(
    query: TimedQueries, request: HttpRequest, search: BulkOperation, after: int
) -> tuple[FoundJobs | None, list[job_list.JobRow]]:
    found = query(
        gettext_noop("jobs"),
        lambda: background_search.found(search, after=after, limit=PER_PAGE),
    )
    if found is None:
        return None, []
    return found, job_list.rows(query, found.jobs, payload=payloads.has_permission(request))
