"""Dead letters, grouped by queue, type, error and message; actions apply to whole groups."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_ojs.admin import payload_permission
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.bulk_actions import bulk_buttons
from django_ojs.admin.formatting import number
from django_ojs.admin.job_list import filter_query
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.models import Job
from django_ojs.operations.jobs import dead_letter_groups, redaction
from django_ojs.operations.jobs.dead_letter_groups import Group, Groups
from django_ojs.operations.jobs.job_filter import JobFilter


class DeadLetterAdmin(OperatorModelAdmin):
    """Lists the groups. A dead letter is a job, so it is shown on the page of that job."""

    place = 30
    view_permission = "view_job"

    def list_page(self, request: HttpRequest) -> HttpResponse:
        latest_first = request.GET.get("sort") == "last"
        by_message = payload_permission.has_permission(request) and not redaction.hides("message")
        with timed_queries() as query:
            found = query(
                gettext_noop("dead letters"),
                lambda: dead_letter_groups.groups(latest_first=latest_first, by_message=by_message),
            )
        all_dead = JobFilter(dead_letter=True)
        return self.render(
            request,
            "dead_letters",
            _("Dead letters"),
            {
                "found": found,
                "latest_first": latest_first,
                "more_groups": found.found - len(found.groups) if found else 0,
                "rows": [self._row(request, group) for group in found.groups] if found else (),
                "jobs_query": filter_query(all_dead),
                "buttons": bulk_buttons(self, request, all_dead, what=_all(found)) if found else (),
                "unread": query.unread,
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        try:
            return HttpResponseRedirect(self.url("change", key, model=Job))
        except NoReverseMatch:  # The project's own site has no page of jobs.
            raise Http404 from None

    def _row(self, request: HttpRequest, group: Group) -> dict[str, Any]:
        which = group.filter
        return {
            "group": group,
            "jobs_query": filter_query(which) if which else "",
            "buttons": bulk_buttons(self, request, which, what=_("group")) if which else (),
        }


def _all(found: Groups) -> str:
    return _("all %(count)s") % {"count": number(found.total)}
