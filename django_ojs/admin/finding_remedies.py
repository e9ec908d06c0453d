"""The buttons and links of a finding: what an operator can do about it."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.contrib.admin.exceptions import NotRegistered
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.bulk_actions import bulk_buttons
from django_ojs.admin.job_list import filter_query
from django_ojs.finding import AdminPage, Finding
from django_ojs.models import Job, Queue
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec.errors import OJSError
from django_ojs.spec.states import State


def remedies(page: OperatorModelAdmin, request: HttpRequest, finding: Finding) -> list[Button]:
    """Return what the user may do about a finding; nothing if no page offers a remedy."""
    found: list[Button] = []
    for to in finding.pages:
        with suppress(OJSError):  # Not every name can be written in a search.
            found += list(_buttons(page, request, to))
    return found


def resume(page: OperatorModelAdmin, request: HttpRequest, queue: str) -> list[Button]:
    """Return the button that resumes a paused queue."""
    return page.buttons_of(request, Queue(name=queue, paused_at=timezone.now()), "resume")


def jobs(
    page: OperatorModelAdmin, request: HttpRequest, label: str, which: JobFilter
) -> list[Button]:
    """Return a link to the jobs of a filter."""
    return page.link(request, label, Job, query=filter_query(which))


def _buttons(page: OperatorModelAdmin, request: HttpRequest, to: AdminPage) -> Iterator[Button]:
    if to.jobs is not None:
        which = JobFilter(**to.jobs)  # type: ignore[arg-type]  # its arguments
        if to.action:
            yield from bulk_buttons(page, request, which, to.action, what=pgettext("jobs", "all"))
        else:
            yield from jobs(page, request, _jobs_label(which), which)
        return
    try:
        admin: Any = page.admin_site.get_model_admin(to.model)
    except NotRegistered:
        return
    obj = to.model(pk=to.key)
    if to.key and not admin.has_view_permission(request, obj):
        if not to.action:
            yield from _list(page, request, admin, to.model)
    elif to.action and isinstance(admin, OperatorModelAdmin):
        for name, value in to.state:
            setattr(obj, name, value)
        yield from page.buttons_of(request, obj, to.action)
    elif to.action:
        yield from _form(page, request, admin, to)
    elif to.key:
        name = capfirst(str(to.model._meta.verbose_name))
        yield from page.link(
            request, f"{name} {to.key}" if to.names_key else name, to.model, to.key
        )
    else:
        yield from _list(page, request, admin, to.model, to.query)


def _jobs_label(which: JobFilter) -> str:
    if which.states == (State.AVAILABLE,):
        return _("Waiting jobs")
    if which.states == (State.ACTIVE,):
        return _("Running jobs")
    return _("Its failed jobs") if State.DISCARDED in which.states else _("Its jobs")


def _list(
    page: OperatorModelAdmin, request: HttpRequest, admin: Any, model: type[Model], query: str = ""
) -> Iterator[Button]:
    """Yield a link to a list, which may belong to an ordinary ModelAdmin."""
    if admin.has_view_permission(request):
        label = capfirst(str(model._meta.verbose_name_plural))
        url = page.url("changelist", model=model) + query
        yield Button(label=label, url=url, destructive=False, is_link=True)


def _form(
    page: OperatorModelAdmin, request: HttpRequest, admin: Any, to: AdminPage
) -> Iterator[Button]:
    """Yield a link to a page of an object, such as an API key, for a user who may use it."""
    obj: Model | None = admin.get_object(request, to.key)
    may = getattr(admin, f"has_{to.action}_permission")
    if obj is not None and may(request, obj):
        label = _("Replace…") if to.action == "replace" else _("Change its expiry")
        url = page.url(to.action, to.key, model=to.model)
        yield Button(label=label, url=url, destructive=False, is_link=True)
