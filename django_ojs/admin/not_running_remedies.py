"""The buttons and links for a job that does not run."""

from dataclasses import replace

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.finding_remedies import jobs, resume
from django_ojs.claim_rules import Waits
from django_ojs.models import Job, Queue, Worker
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.reports.not_running import NotRunning
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State


def remedies(
    page: OperatorModelAdmin, request: HttpRequest, job: Job, reason: NotRunning | None
) -> list[Button]:
    """Return what the user may do so that a job runs; nothing if the job only has to wait."""
    if reason is None:
        return []
    try:
        return _remedies(page, request, job, reason)
    except OJSError:  # Not every name can be written in a search.
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
        case "waits":
            return _running(page, request, job)
        case _ if reason.waits is not None:
            return [*_changes(page, request, job, reason.waits), *_running(page, request, job)]
        case _:
            return []


def _running(page: OperatorModelAdmin, request: HttpRequest, job: Job) -> list[Button]:
    running = JobFilter(queue=job.queue, states=(State.ACTIVE,))
    return jobs(page, request, _("Running jobs"), running)


def _changes(
    page: OperatorModelAdmin, request: HttpRequest, job: Job, waits: Waits
) -> list[Button]:
    """Return links to where the user can change what the job waits for."""
    if waits.about is not None:
        return page.link_to(request, waits.about)
    buttons = page.buttons_of(request, Queue(name=job.queue), "configure")
    # `open` names the group of values that the form unfolds.
    return [replace(button, url=f"{button.url}&open={waits.group}") for button in buttons]
