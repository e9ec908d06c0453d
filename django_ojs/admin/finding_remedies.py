"""The buttons and links of a finding: what an operator does about it."""

from collections.abc import Callable
from typing import Any, Final

from django.contrib.admin.exceptions import NotRegistered
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_ojs.admin import limit_key_text
from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.bulk_actions import bulk_buttons
from django_ojs.admin.job_list import filter_query
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.models import ApiKey, DeadLetterJob, Job, Queue, Worker
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.reports.findings import Finding
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State

_Remedy = Callable[[OperatorModelAdmin, HttpRequest, Finding], list[Button]]


def remedies(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    """Return what the user may do about a finding; none for what no page can mend."""
    remedy = _REMEDIES.get(finding.kind)
    try:
        return [] if remedy is None else remedy(page, request, finding)
    except OJSError:  # A name that a search cannot hold.
        return []


def _maintenance(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    return page.end_maintenance(request)


def resume(page: OperatorModelAdmin, request: HttpRequest, queue: str) -> list[Button]:
    """Return the button that resumes a paused queue."""
    return page.buttons_of(request, Queue(name=queue, paused_at=timezone.now()), "resume")


def jobs(
    page: OperatorModelAdmin, request: HttpRequest, label: str, which: JobFilter
) -> list[Button]:
    """Return a link to the jobs of a filter."""
    return page.link(request, label, Job, query=filter_query(which))


def _full(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    queue = finding.queue or ""
    return [
        *page.buttons_of(request, Queue(name=queue), "configure"),
        *jobs(page, request, _("Waiting jobs"), _waiting(finding)),
    ]


def _waiting(finding: Finding) -> JobFilter:
    return JobFilter(queue=finding.queue, states=(State.AVAILABLE,))


def _workers(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    return page.link(request, _("Workers"), Worker)


def _late(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    running = JobFilter(queue=finding.queue, states=(State.ACTIVE,))
    return [
        *jobs(page, request, _("Running jobs"), running),
        *jobs(page, request, _("Waiting jobs"), _waiting(finding)),
        # They may wait for their limits.
        *_limit_keys(page, request, finding),
    ]


def _unworked(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    return [
        *_workers(page, request, finding),
        *jobs(page, request, _("Waiting jobs"), _waiting(finding)),
    ]


def _lost(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    if finding.job is not None:
        return page.link(request, _("The job"), Job, str(finding.job))
    died = JobFilter(error_type="worker_death", type=finding.type)
    return jobs(page, request, _("Jobs whose worker died"), died)


def _unknown_type(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    which = JobFilter(queue=finding.queue, type=finding.type)
    cancel = bulk_buttons(page, request, which, "cancel", what=pgettext("jobs", "all"))
    return [*jobs(page, request, _("Its jobs"), which), *cancel]


def _failing(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    failed = JobFilter(
        queue=finding.queue, type=finding.type, states=(State.RETRYABLE, State.DISCARDED)
    )
    return jobs(page, request, _("Its failed jobs"), failed)


def _dead_letters(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    return page.link(request, _("Dead letters"), DeadLetterJob, query="?sort=last")


def limit_key(page: OperatorModelAdmin, request: HttpRequest, key: str) -> list[Button]:
    """Return a link to a limit key, for a user who may see all of the key."""
    if not limit_key_text.is_visible(request, key):
        return []
    return page.link(request, _("Limit key"), LimitKey, key)


def _limit_keys(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    return page.link(request, _("Limit keys"), LimitKey)


def _limit_key_paused(
    page: OperatorModelAdmin, request: HttpRequest, finding: Finding
) -> list[Button]:
    key = LimitKey(pk=finding.limit_key, paused_until=finding.until)
    if not limit_key_text.is_visible(request, key.pk):
        return _limit_keys(page, request, finding)
    return [
        *limit_key(page, request, key.pk),
        *page.buttons_of(request, key, "resume"),
    ]


def _problem(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    problem = finding.problem
    if problem is None or problem.model is None:
        return []
    label = capfirst(str(problem.model._meta.verbose_name_plural))
    return _list(page, request, label, problem.model, problem.query)


def _list(
    page: OperatorModelAdmin, request: HttpRequest, label: str, model: type[Model], query: str = ""
) -> list[Button]:
    """Return a link to a list that is an ordinary ModelAdmin's, which `page.link` leaves out."""
    try:
        found: Any = page.admin_site.get_model_admin(model)
    except NotRegistered:
        return []
    if not found.has_view_permission(request):
        return []
    url = page.url("changelist", model=model)
    return [Button(label=label, url=url + query, destructive=False, is_link=True)]


def _key_expires(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    if finding.key is None or finding.key.replaced_by:
        return _key(page, request, finding)
    return _key_page(page, request, finding, "replace", _("Replace…"))


def _key(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    label = (
        _("Revoked key")
        if finding.key and finding.key.status == "revoked"
        else _("Change its expiry")
    )
    return _key_page(page, request, finding, "change", label)


def _key_page(
    page: OperatorModelAdmin, request: HttpRequest, finding: Finding, name: str, label: str
) -> list[Button]:
    """Return a link to a page of an API key, for a user who may change it."""
    try:
        key_admin: Any = page.admin_site.get_model_admin(ApiKey)
    except NotRegistered:
        return []
    key = None if finding.key is None else key_admin.get_object(request, str(finding.key.id))
    may = key_admin.has_replace_permission if name == "replace" else key_admin.has_change_permission
    if key is None or not may(request, key):
        return []
    return [
        Button(
            label=label,
            url=page.url(name, key.pk, model=ApiKey),
            destructive=False,
            is_link=True,
        )
    ]


_REMEDIES: Final[dict[str, _Remedy]] = {
    "maintenance": _maintenance,
    "full": _full,
    "near": _full,
    "rejected": _full,
    "unworked": _unworked,
    "late": _late,
    "stale": _workers,
    "lost": _lost,
    "unknown_type": _unknown_type,
    "failing": _failing,
    "dead_letters": _dead_letters,
    "limit_drops": _limit_keys,
    "limit_key_paused": _limit_key_paused,
    "limit_keys_paused": _limit_keys,
    "problem": _problem,
    "key_expires": _key_expires,
    "key_rejected": _key,
    "paused": lambda page, request, finding: resume(page, request, finding.queue or ""),
    "draining": lambda page, request, finding: resume(page, request, finding.queue or ""),
}
