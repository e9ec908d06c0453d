"""Cron jobs: their schedules in words, the next occurrences, the runs; create, edit, pause, run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy

from django_ojs.admin import limit_key_text, payload_permission
from django_ojs.admin.actions import Action, Skipped
from django_ojs.admin.base import OperatorModelAdmin, read_page
from django_ojs.admin.formatting import StrOrPromise, duration
from django_ojs.admin.job_list import Badge, badge
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.admin_form import CronJobForm
from django_ojs.extensions.cron.cron_events import SkipReason
from django_ojs.extensions.cron.models import CronJob, CronOwner, CronRun
from django_ojs.extensions.cron.operations import description, schedule
from django_ojs.extensions.cron.spec import CronExpressionError, check_timezone
from django_ojs.extensions.statistics import admin_svg as svg
from django_ojs.handlers import parameters_of
from django_ojs.models import Job
from django_ojs.operations.jobs.redaction import redacted, redacted_args
from django_ojs.spec import json
from django_ojs.spec.errors import InvalidRequest, OJSError
from django_ojs.spec.scopes import Scope
from django_ojs.spec.times import elapsed

_MAX_RUNS: Final = 20
_NEXT: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """A run, and its job, which is None after it was pruned."""

    run: CronRun
    job: Job | None
    badge: Badge | None


def _pause(request: HttpRequest, job: CronJob, values: Mapping[str, Any]) -> str:
    if not job.enabled:
        raise Skipped(_("The cron job is already paused."))
    cron.set_enabled(job.name, False)
    text = _("Cron job %(name)s is paused: it enqueues nothing until it is resumed.")
    return text % {"name": job.name}


def _resume(request: HttpRequest, job: CronJob, values: Mapping[str, Any]) -> str:
    if job.enabled:
        raise Skipped(_("The cron job is not paused."))
    cron.set_enabled(job.name, True)
    return _("Cron job %(name)s is resumed.") % {"name": job.name}


def _run(request: HttpRequest, job: CronJob, values: Mapping[str, Any]) -> str:
    queued = cron.trigger(job.name, by=request.user.get_username())
    text = _("Cron job %(name)s has enqueued job %(id)s.")
    return text % {"name": job.name, "id": queued.id}


def _run_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        _("A job is enqueued now. The schedule stays as it is."),
        _("The overlap policy applies: with skip, nothing is enqueued while a run has not ended."),
    )


def _remove(request: HttpRequest, job: CronJob, values: Mapping[str, Any]) -> str:
    cron.remove(job.name)
    return _("Cron job %(name)s is removed.") % {"name": job.name}


def _remove_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (_("It enqueues nothing any more. The jobs that it has enqueued stay."),)


def _is_editable(job: CronJob) -> bool:
    return job.owner != CronOwner.CODE


ACTIONS: Final = (
    Action(
        name="run",
        label=gettext_lazy("Run now"),
        done=ngettext_lazy("%(count)d run", "%(count)d run", "count"),
        scope=Scope.OPERATOR,
        run=_run,
        consequences=_run_consequences,
    ),
    Action.pause(_pause, applies_to=lambda job: bool(job.enabled)),
    Action.resume(_resume, applies_to=lambda job: not job.enabled),
    Action(
        name="remove",
        label=gettext_lazy("Remove"),
        done=ngettext_lazy("%(count)d removed", "%(count)d removed", "count"),
        scope=Scope.ADMIN,
        run=_remove,
        consequences=_remove_consequences,
        destructive=True,
        multiple=False,
        applies_to=_is_editable,
    ),
)


class CronJobAdmin(OperatorModelAdmin):
    """The cron jobs. Those that are declared in code can be paused and run, but not edited."""

    place = 60
    object_actions = ACTIONS

    def get_urls(self) -> list[URLPattern]:
        return [
            self.pattern("create/", self.form_view, "create"),
            self.pattern("<str:key>/edit/", self.form_view, "edit"),
            *super().get_urls(),
        ]

    def return_url(self, request: HttpRequest) -> str:
        # The page of a removed cron job does not exist any more.
        match = request.resolver_match
        if request.method == "POST" and match and match.kwargs.get("name") == "remove":
            return self.url("changelist")
        return super().return_url(request)

    def list_page(self, request: HttpRequest) -> HttpResponse:
        text = request.GET.get("q", "").strip().replace("\0", "")
        with timed_queries() as query:
            read = partial(cron.page, text=text)
            page, paging = read_page(request, query, gettext_noop("cron jobs"), read)
            jobs = page.rows if page else []
            names = [job.name for job in jobs]
            last = query(gettext_noop("runs"), lambda: cron.last_jobs(names)) or {}
        return self.render(
            request,
            "cron_jobs",
            _("Cron jobs"),
            {
                **paging,
                "rows": [
                    (
                        job,
                        _words(job),
                        badge(last[job.name]) if job.name in last else None,
                        _skipped_because(job),
                    )
                    for job in jobs
                ],
                "text": text,
                "unread": query.unread,
                "buttons": self.selection_buttons(request),
                "create_url": self._create_url(request),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        with timed_queries() as query:
            job = query(gettext_noop("cron job"), lambda: self.get_object(request, key))
            if job is None and not query.unread:
                raise Http404(_("There is no such cron job: it was removed, or never registered."))
            runs = None if job is None else query(gettext_noop("runs"), lambda: _runs(key))
        context: dict[str, Any] = {"job": job, "runs": runs, "unread": query.unread}
        if job is not None:
            context |= {
                "words": _words(job),
                "because": _skipped_because(job),
                "durations": _durations(runs or []),
                "upcoming": _upcoming(job),
                "template": _template(request, job),
                "buttons": self.buttons(request, job),
                "edit_url": self._edit_url(request, job),
            }
        return self.render(request, "cron_job", key, context)

    def form_view(self, request: HttpRequest, key: str | None = None) -> HttpResponse:
        """Create a cron job, or edit one that is not declared in code."""
        self.check_view_permission(request)
        if not self.has_scope(request, Scope.ADMIN):
            raise PermissionDenied
        job = None if key is None else self.get_object(request, key)
        if key is not None and (job is None or not _is_editable(job)):
            raise Http404
        data = request.POST if request.method == "POST" else None
        form = CronJobForm(data, existing=job, payload=_may_edit_args(request, job))
        if form.is_valid():
            try:
                stored = self._store(request, form, job)
            except OJSError as error:
                form.add_operation_error(error)
            else:
                return HttpResponseRedirect(self.url("change", stored.pk))
        title = _("Create a cron job") if job is None else _("Edit %(name)s") % {"name": job.name}
        next_url = self.url("changelist") if job is None else self.url("change", job.pk)
        return self.render(request, "cron_form", title, {"form": form, "next": next_url})

    def _store(self, request: HttpRequest, form: CronJobForm, job: CronJob | None) -> CronJob:
        definition = form.definition()
        if job is None and self.get_object(request, definition.name) is not None:
            raise InvalidRequest.of("name", "is taken by another cron job.")
        stored, _is_new = cron.register(definition)
        self.message_user(
            request,
            _("Cron job %(name)s runs %(schedule)s.")
            % {"name": stored.name, "schedule": _words(stored)},
            "SUCCESS",
        )
        if warning := cron.warning_of(stored.expression):
            self.message_user(request, warning, "WARNING")
        return stored

    def _create_url(self, request: HttpRequest) -> str:
        return self.url("create") if self.has_scope(request, Scope.ADMIN) else ""

    def _edit_url(self, request: HttpRequest, job: CronJob) -> str:
        editable = _is_editable(job) and self.has_scope(request, Scope.ADMIN)
        return self.url("edit", job.pk) if editable else ""


def _words(job: CronJob) -> str:
    try:
        return description.describe(schedule.parse_expression(job.expression), job.timezone)
    except CronExpressionError as error:
        return _("invalid: %(error)s") % {"error": str(error)}


#: Why the last occurrence enqueued no job, by `SkipReason`.
_BECAUSE: Final[dict[str, StrOrPromise]] = {
    SkipReason.OVERLAP: gettext_lazy("a run has not ended"),
    SkipReason.DROPPED: gettext_lazy("a middleware dropped the job"),
    SkipReason.DUPLICATE: gettext_lazy("a unique policy found another job"),
    SkipReason.REJECTED: gettext_lazy("the job was rejected"),
}


def _skipped_because(job: CronJob) -> StrOrPromise:
    return _BECAUSE.get(job.skipped_why, job.skipped_why)


def _durations(runs: Sequence[_Run]) -> svg.Chart | None:
    """Return a chart of how long the latest runs took, or None for fewer than two."""
    found = [
        elapsed(job.started_at, job.finished_at).total_seconds()
        for each in reversed(runs)
        if (job := each.job) is not None and job.started_at and job.finished_at
    ]
    if len(found) < 2:
        return None
    title = _("Running times of the latest runs, at most %(longest)s")
    return svg.sparkline(title % {"longest": duration(max(found))}, found)


def _upcoming(job: CronJob) -> list[tuple[datetime, datetime]]:
    """Return the next occurrences: each as a moment, and as clocks in its timezone show it."""
    if job.next_run_at is None:
        return []
    try:
        expression = schedule.parse_expression(job.expression)
        timezone = check_timezone(job.timezone)
    except CronExpressionError:  # The timezone is no longer in the timezone database.
        return []
    before = job.next_run_at.astimezone(UTC) - (expression.interval or timedelta(microseconds=1))
    found = expression.occurrences(before, timezone)
    return [(each.at, each.wall) for each in islice((o for o in found if not o.skipped), _NEXT)]


def _runs(name: str) -> list[_Run]:
    rows = list(cron.runs(name)[:_MAX_RUNS])
    jobs: dict[UUID, Job] = Job.primary.in_bulk([row.job_id for row in rows])
    return [
        _Run(run=row, job=job, badge=None if job is None else badge(job))
        for row in rows
        for job in (jobs.get(row.job_id),)
    ]


def _template(request: HttpRequest, job: CronJob) -> str:
    """Return the enqueued job as JSON, or "" for a user who may not see arguments."""
    if not payload_permission.may_see(request):
        return ""
    return json.pretty(redacted(limit_key_text.in_document(job.template)))


def _may_edit_args(request: HttpRequest, job: CronJob | None) -> bool:
    """Return whether the form has a field for the arguments.

    It has none if an argument is redacted, because the form would store the redacted value.
    """
    args = None if job is None else job.template.get("args")
    shown = args if job is None else redacted_args(args, parameters_of(job.type, args))
    return payload_permission.may_see(request) and shown == args
