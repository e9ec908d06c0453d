"""The steps of a job on its page, on an axis of time, and the actions of operators on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django import forms
from django.db.models import Case, F, When
from django.db.models.functions import Length
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy, pgettext_lazy

from django_ojs.admin import payload_permission
from django_ojs.admin.actions import Action
from django_ojs.admin.base import Button, OperatorModelAdmin
from django_ojs.admin.enqueue_form import JSONArgumentField
from django_ojs.admin.job_list import Badge
from django_ojs.admin.operator_views import view_name
from django_ojs.admin.panels import Panel
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.admin.timeline import WIDTH
from django_ojs.extensions.steps import operations
from django_ojs.extensions.steps.models import Step, StepKind, StepStatus, read
from django_ojs.extensions.steps.sending import signal
from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.operations.jobs.redaction import redacted
from django_ojs.spec import json
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed

#: How many of the latest steps the page of a job shows, and the most characters of a shown result.
_MAX_STEPS: Final = 100
_MAX_RESULT: Final = 16 * 1024
#: The width of the shortest step, in units of the SVG.
_MIN_WIDTH: Final = 4.0

_BADGES: Final[Mapping[str, Badge]] = {
    StepStatus.DONE: Badge(
        value="done", symbol="✓", word=pgettext_lazy("state of a step", "done"), level="good"
    ),
    StepStatus.WAITING: Badge(
        value="waiting", symbol="○", word=pgettext_lazy("state of a step", "waiting"), level="blue"
    ),
    StepStatus.TIMED_OUT: Badge(
        value="timed_out",
        symbol="◷",
        word=pgettext_lazy("state of a step", "timed out"),
        level="fair",
    ),
    StepStatus.FAILED: Badge(
        value="failed", symbol="✕", word=pgettext_lazy("state of a step", "failed"), level="bad"
    ),
}
#: During steps of these kinds, the job waits and runs on no worker.
_WAITS: Final = (StepKind.SLEEP, StepKind.WAIT, StepKind.GATHER)
#: In these states a job can be run again from a step.
_AGAIN: Final = (State.SCHEDULED, State.DISCARDED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownStep:
    """A step as the page shows it, and where it is on the axis."""

    step: Step
    badge: Badge
    #: How it is drawn: as a wait, or in the colour of its outcome.
    drawn: str
    took: timedelta
    x: str
    width: str
    result: str = ""
    error: Any = None
    again: str = ""


class SignalForm(forms.Form):
    """The payload of a signal."""

    payload = JSONArgumentField(
        label=gettext_lazy("Payload, as JSON"),
        initial="null",
        rows=4,
        help_text=gettext_lazy("The wait returns this value to the handler."),
    )


def _end(step: Step, request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    operations.end_wait(job.pk, step.number)
    return _("The step %(name)s does not wait any more: the job is available.") % {
        "name": step.name
    }


def _signal(step: Step, request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    assert step.signal is not None
    assert step.key is not None
    signal(step.signal, step.key, values["payload"])
    # The payload is left out, because the audit trail holds no arguments.
    operator.acted("job.signalled", job.pk, signal=step.signal, key=step.key)
    return _("The signal %(name)s of %(key)s is sent.") % {"name": step.signal, "key": step.key}


def _run_again(step: Step, request: HttpRequest, job: Job, values: Mapping[str, Any]) -> str:
    operations.run_again_from(job.pk, step.number)
    return _("The job runs again from the step %(name)s.") % {"name": step.name}


def _wake(step: Step) -> Action:
    label = _("Try again now") if step.kind == StepKind.RUN else _("Wake now")
    return Action(
        name="wake",
        label=label,
        done=ngettext_lazy("%(count)d woken", "%(count)d woken", "count"),
        scope=Scope.OPERATOR,
        run=partial(_end, step),
    )


def _end_wait(step: Step) -> Action:
    return Action(
        name="end-wait",
        label=gettext_lazy("End the wait"),
        done=ngettext_lazy("%(count)d woken", "%(count)d woken", "count"),
        scope=Scope.OPERATOR,
        run=partial(_end, step),
        consequences=lambda request, jobs: (
            _("The step %(name)s ends with a timeout, as if nothing had come in time.")
            % {"name": step.name},
            _("The handler gets the error of a timeout, now and in each later run."),
        ),
    )


def _send(step: Step) -> Action:
    return Action(
        name="signal",
        label=gettext_lazy("Send the signal"),
        done=ngettext_lazy("%(count)d sent", "%(count)d sent", "count"),
        scope=Scope.OPERATOR,
        run=partial(_signal, step),
        form=SignalForm,
        consequences=lambda request, jobs: (
            _("This job and all others that wait for %(name)s of %(key)s get the signal.")
            % {"name": step.signal, "key": step.key},
        ),
    )


def _again(step: Step) -> Action:
    return Action(
        name="again",
        label=gettext_lazy("Run again from here"),
        done=ngettext_lazy("%(count)d run again", "%(count)d run again", "count"),
        scope=Scope.OPERATOR,
        run=partial(_run_again, step),
        consequences=lambda request, jobs: (
            _("The step %(name)s and all steps after it are forgotten, with their results.")
            % {"name": step.name},
            _("The job is available, and does these steps again. What they did is not undone."),
            _("The job receives the signals of the forgotten steps again."),
        ),
        destructive=True,
    )


#: The actions by their names in the address of a step.
_ACTIONS: Final[Mapping[str, Callable[[Step], Action]]] = {
    "wake": _wake,
    "end-wait": _end_wait,
    "signal": _send,
    "again": _again,
}


def action_view(
    page: OperatorModelAdmin, request: HttpRequest, key: UUID, number: int, name: str
) -> HttpResponse:
    """Run an action on a step, or ask for confirmation. Raises PermissionDenied, Http404."""
    page.check_view_permission(request)
    step = Step.primary.filter(job_id=key, number=number).defer("result").first()
    if step is None or name not in _ACTIONS:
        raise Http404
    return page.run_action(request, _ACTIONS[name](step), [str(key)])


def urls(page: OperatorModelAdmin) -> Sequence[Any]:
    """Return the address of the actions on a step."""
    if page.model is not Job:
        return ()
    route = "<uuid:key>/steps/<int:number>/<slug:name>/"
    return (page.pattern(route, partial(action_view, page), "step"),)


def _of_job(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, job: Job
) -> dict[str, Any] | None:
    with_results = payload_permission.may_see(request)
    found = query(gettext_noop("steps"), lambda: _latest(job, with_results=with_results))
    if not found:
        return None
    more, steps = len(found) > _MAX_STEPS, found[:_MAX_STEPS][::-1]
    may_act = page.has_scope(request, Scope.OPERATOR)
    last = steps[-1]
    rows = _rows(steps, timezone.now(), with_payload=payload_permission.has_permission(request))
    if may_act and job.state in _AGAIN:
        rows = [replace(row, again=_url(page, request, row.step, "again")) for row in rows]
    waits = last if last.outcome == StepStatus.WAITING and job.state == State.SCHEDULED else None
    return {
        "rows": rows,
        "more": more,
        "buttons": _buttons(page, request, waits) if may_act and waits is not None else (),
    }


PANEL: Final = Panel(kind=Job, read=_of_job, template="django_ojs/admin/job_steps.html", place=10)


def _latest(job: Job, *, with_results: bool) -> list[Step]:
    steps = Step.primary.filter(job_id=job.pk).defer("result").order_by("-number")
    if with_results:
        small = When(bytes__lte=_MAX_RESULT, then=F("result"))
        steps = steps.annotate(bytes=Length("result"), text=Case(small))
    return list(steps[: _MAX_STEPS + 1])


def _rows(steps: Sequence[Step], now: datetime, *, with_payload: bool) -> list[ShownStep]:
    first = min(step.started_at for step in steps).astimezone(UTC)
    ends = [_end_of(step, now) for step in steps]
    length = max(elapsed(first, max(ends)).total_seconds(), 0.001)

    def at(moment: datetime) -> float:
        return elapsed(first, moment).total_seconds() / length * WIDTH

    rows = []
    for step, end in zip(steps, ends, strict=True):
        badge = _BADGES[step.outcome]
        start = min(at(step.started_at), WIDTH - _MIN_WIDTH)
        rows.append(
            ShownStep(
                step=step,
                badge=badge,
                drawn="wait" if step.kind in _WAITS else badge.level,
                took=elapsed(step.started_at, end),
                x=f"{start:.1f}",
                width=f"{max(_MIN_WIDTH, at(end) - start):.1f}",
                result=_result(step),
                error=redacted(step.error) if with_payload and step.error else None,
            )
        )
    return rows


def _end_of(step: Step, now: datetime) -> datetime:
    is_over = step.outcome != StepStatus.WAITING and step.ended_at is not None
    end = step.ended_at if is_over and step.ended_at else now
    return max(step.started_at, end).astimezone(UTC)


def _result(step: Step) -> str:
    """Return the result of a step as JSON, or the length of a large one, if the user may see it."""
    text = getattr(step, "text", None)
    if text is not None:
        return json.pretty(redacted(read(text)))
    size = getattr(step, "bytes", None)
    return "" if size is None else _("%(count)d characters of JSON") % {"count": size}


def _buttons(page: OperatorModelAdmin, request: HttpRequest, step: Step) -> list[Button]:
    if step.kind not in (StepKind.WAIT, StepKind.GATHER):
        names = ["wake"]
    else:
        names = ["signal", "end-wait"] if step.kind == StepKind.WAIT else ["end-wait"]
    actions = [_ACTIONS[name](step) for name in names]
    return [
        Button(
            label=action.label,
            url=_url(page, request, step, action.name, asks=action.needs_confirmation),
            destructive=action.destructive,
            needs_confirmation=action.needs_confirmation,
            key=str(step.job_id),
        )
        for action in actions
    ]


def _url(
    page: OperatorModelAdmin, request: HttpRequest, step: Step, name: str, *, asks: bool = True
) -> str:
    url = reverse(
        view_name(Job, "step"),
        args=(step.job_id, step.number, name),
        current_app=page.admin_site.name,
    )
    return f"{url}?{urlencode({'next': request.get_full_path()})}" if asks else url
