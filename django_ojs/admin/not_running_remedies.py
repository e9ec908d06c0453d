"""The buttons and links for a job that does not run."""

from dataclasses import replace

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.finding_remedies import jobs, limit_key, resume
from django_ojs.models import Job, Queue, Worker
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.reports.not_running import NotRunning
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State


def remedies(
    page: OperatorModelAdmin, request: HttpRequest, job: Job, reason: NotRunning | None
) -> list[Button]:
    """Return what the user may do so that a job runs; none where it only has to wait."""
    if reason is None:
        return []
    try:
        return _remedies(page, request, job, reason)
    except OJSError:  # A name that a search cannot hold.
        return []


def _remedies(
    page: OperatorModelAdmin, request: HttpRequest, job: Job, reason: NotRunning
) -> list[Button]:
    match reason.kind:
        case "maintenance":
            return page.end_maintenance(request)
        case "paused":
            return resume(page, request, job.queue)
        case "unworked" | "unworked_pool" | "alone" | "overdue":
            return page.link(request, _("Workers"), Worker)
        case "unknown_type":
            return jobs(page, request, _("Jobs of this type"), JobFilter(type=job.type))
        case "waits" | "limited":
            running = JobFilter(queue=job.queue, states=(State.ACTIVE,))
            queue = Queue(name=job.queue)
            mend = page.buttons_of(request, queue, "configure") if reason.kind == "limited" else []
            # Where the form opens.
            mend = [replace(button, url=f"{button.url}&open=limits") for button in mend]
            return [*mend, *jobs(page, request, _("Running jobs"), running)]
        case "limited_by_key":
            assert job.limit_key is not None
            running = JobFilter(queue=job.queue, states=(State.ACTIVE,))
            return [
                *limit_key(page, request, job.limit_key),
                *jobs(page, request, _("Running jobs"), running),
            ]
        case _:
            return []
