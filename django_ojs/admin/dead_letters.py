"""Dead letters by what they have in common, so that one fix is one retry."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from django_ojs.admin.base import Pages
from django_ojs.admin.bulk_actions import choices
from django_ojs.admin.job_list import address
from django_ojs.admin.payloads import redacted
from django_ojs.admin.query_timeout import asking
from django_ojs.operations.jobs import dead_letter_groups
from django_ojs.operations.jobs.dead_letter_groups import Group
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.errors import OJSError


class DeadLetterPages(Pages):
    """The groups; each letter is a job, and has its page there."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those look who may look at jobs."""
        user: Any = request.user
        return bool(user.has_perm("django_ojs.view_job"))

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """Show the groups."""
        latest = request.GET.get("sort") == "last"
        with asking() as ask:
            found = ask("dead letters", lambda: dead_letter_groups.groups(latest_first=latest))
        see = self.has_payload_permission(request)
        return self.render(
            request,
            "dead_letters",
            "Dead letters",
            {
                "found": found,
                "latest": latest,
                "left_out": found.found - len(found.groups) if found else 0,
                "rows": [self._row(request, group, see) for group in found.groups] if found else (),
                "flat": self._jobs() + address(JobFilter(dead_letter=True)),
                "whole": choices(self, request, JobFilter(dead_letter=True), what="all"),
                "unknown": ask.unknown,
                "looked_at": timezone.now(),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        """Lead to the job."""
        page = reverse("admin:django_ojs_job_change", args=[key], current_app=self.admin_site.name)
        return HttpResponseRedirect(page)

    def _row(self, request: HttpRequest, group: Group, see: bool) -> dict[str, Any]:
        which = _filter(group)
        sample = group.sample
        error = redacted(sample.error) if sample is not None and see else None
        return {
            "group": group,
            "jobs": self._jobs() + address(which) if which else "",
            "message": error.get("message", "") if isinstance(error, dict) else "",
            "choices": choices(self, request, which, what="group") if which else (),
        }

    def _jobs(self) -> str:
        return reverse("admin:django_ojs_job_changelist", current_app=self.admin_site.name)


def _filter(group: Group) -> JobFilter | None:
    if group.error_type is None:
        return None  # It would mean whatever error.
    try:
        return JobFilter(
            queue=group.queue, type=group.type, error_type=group.error_type, dead_letter=True
        )
    except OJSError:  # A text that nobody could type.
        return None


__all__ = ["DeadLetterPages"]
