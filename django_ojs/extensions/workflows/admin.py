"""Workflows: how far each one is, a picture of its steps, and the action *Cancel*."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy, pgettext_lazy

from django_ojs.admin import payload_permission
from django_ojs.admin.actions import Action
from django_ojs.admin.base import OperatorModelAdmin, page_of, read_page
from django_ojs.admin.job_list import Badge
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows.admin_diagram import StepRow, diagram, state_counts
from django_ojs.extensions.workflows.models import StepState, Workflow, WorkflowState, WorkflowStep
from django_ojs.models import Job
from django_ojs.operations.jobs.redaction import redacted
from django_ojs.reports.not_running import why_not_running
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed
from django_ojs.storage.dialects.expressions import OneOf

STEPS_PER_PAGE: Final = 100
#: A workflow with more jobs has no picture and no list of its steps.
MAX_DRAWN: Final = 5_000

BADGES: Final[Mapping[str, Badge]] = {
    WorkflowState.RUNNING: Badge(
        value="running",
        symbol="▶",
        word=pgettext_lazy("state of a workflow", "running"),
        level="blue",
    ),
    WorkflowState.COMPLETED: Badge(
        value="completed",
        symbol="✓",
        word=pgettext_lazy("state of a workflow", "completed"),
        level="good",
    ),
    WorkflowState.FAILED: Badge(
        value="failed", symbol="✕", word=pgettext_lazy("state of a workflow", "failed"), level="bad"
    ),
    WorkflowState.CANCELLED: Badge(
        value="cancelled",
        symbol="⊘",
        word=pgettext_lazy("state of a workflow", "cancelled"),
        level="",
    ),
}


def _cancel(request: HttpRequest, workflow: Workflow, values: Mapping[str, Any]) -> str:
    workflows.cancel(workflow.pk)
    return _("Workflow %(name)s is cancelled.") % {"name": workflow.name or workflow.pk}


def _cancel_choices(workflows: Sequence[Any]) -> tuple[str, str]:
    if len(workflows) == 1:
        return _("Cancel this workflow"), _("Keep it running")
    return _("Cancel these workflows"), _("Keep them running")


def _cancel_consequences(request: HttpRequest, objects: Sequence[Any]) -> Sequence[str]:
    return (
        _("All its jobs that have not ended are cancelled, also the running ones."),
        _("Its waiting steps and its callbacks never start."),
        _("What its jobs have done so far stays done."),
    )


class WorkflowAdmin(OperatorModelAdmin):
    """The workflows, the latest first."""

    place = 50
    object_actions = (
        Action(
            name="cancel",
            label=gettext_lazy("Cancel"),
            done=ngettext_lazy("%(count)d cancelled", "%(count)d cancelled", "count"),
            scope=Scope.OPERATOR,
            run=_cancel,
            consequences=_cancel_consequences,
            choices=_cancel_choices,
            destructive=True,
            applies_to=lambda workflow: workflow.state == WorkflowState.RUNNING,
        ),
    )

    def list_page(self, request: HttpRequest) -> HttpResponse:
        state, name = request.GET.get("state", ""), request.GET.get("q", "").strip()
        which: dict[str, Any] = {"name": name.replace("\0", "")}
        if state in BADGES:
            which["state"] = state
        with timed_queries() as query:
            read = partial(workflows.page, **which)
            page, paging = read_page(request, query, gettext_noop("workflows"), read)
            rows = page.rows if page else []
            first = query(gettext_noop("steps"), lambda: _first_types(rows)) or {}
        return self.render(
            request,
            "workflows",
            _("Workflows"),
            {
                **paging,
                "rows": [
                    (row, BADGES[row.state], row.name or _of_steps(row, first.get(row.pk)))
                    for row in rows
                ],
                "tabs": _tabs(state, name),
                "state": state,
                "text": name,
                "unread": query.unread,
                "buttons": self.selection_buttons(request),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        with timed_queries() as query:
            workflow = query(gettext_noop("workflow"), lambda: self.get_object(request, key))
            if workflow is None and not query.unread:
                raise Http404(_("There is no workflow with this id; it may have been pruned."))
            is_drawn = workflow is not None and workflow.jobs_total <= MAX_DRAWN
            steps = query(gettext_noop("steps"), lambda: _steps(workflow)) if is_drawn else None
            waits = None
            if workflow is not None and workflow.state == WorkflowState.RUNNING:
                may_see = payload_permission.may_see(request)
                waits = query(
                    gettext_noop("why it waits"), lambda: _why_it_waits(steps or [], may_see)
                )
            first = steps[0].type if steps else None
        context: dict[str, Any] = {"workflow": workflow, "unread": query.unread}
        if workflow is not None:
            context |= {
                "badge": BADGES[workflow.state],
                "buttons": self.buttons(request, workflow),
                "is_too_large": not is_drawn,
                "refresh": workflow.state == WorkflowState.RUNNING,
                "waits": waits,
                "took": _took(workflow.created_at, workflow.finished_at),
            }
        if steps is not None:
            context |= self._steps_context(request, steps)
        name = key if workflow is None else workflow.name or _of_steps(workflow, first)
        return self.render(request, "workflow", name, context)

    def _steps_context(self, request: HttpRequest, steps: list[StepRow]) -> dict[str, Any]:
        jobs = [step for step in steps if step.type is not None]
        state, type_ = request.GET.get("state", ""), request.GET.get("type", "")
        chosen = [
            step for step in jobs if state in ("", step.badge.value) and type_ in ("", step.type)
        ]
        shown, paging = page_of(chosen, request.GET.get("p", ""), STEPS_PER_PAGE)
        errors = _errors([step.id for step in shown]) if payload_permission.may_see(request) else {}
        times = _times([step.id for step in shown])
        return {
            **paging,
            "diagram": diagram(steps),
            "counts": state_counts(steps),
            "steps": [(step, errors.get(step.id), times.get(step.id)) for step in shown],
            "number": len(chosen),
            "state": state,
            "type": type_,
        }


def _tabs(current: str, name: str) -> list[tuple[Badge | None, str, bool]]:
    """Return the tabs, "all" first: badge, query, and whether the tab is the current one."""
    names = {"q": name} if name else {}
    found: list[tuple[Badge | None, str, bool]] = [
        (None, f"?{urlencode(names)}", current not in BADGES)
    ]
    for state, badge in BADGES.items():
        query = urlencode({"state": str(state), **names})
        found.append((badge, f"?{query}", current == state))
    return found


def _steps(workflow: Any) -> list[StepRow]:
    rows = list(
        workflows.steps_of(workflow).values(
            "id", "position", "key", "name", "type", "callback", "state", "dependents"
        )
    )
    enqueued = [row["id"] for row in rows if row["state"] == StepState.ENQUEUED]
    states: dict[UUID, str] = {}
    if enqueued:
        states = dict(Job.primary.filter(OneOf("pk", enqueued)).values_list("pk", "state"))
    return [StepRow(**row, job_state=states.get(row["id"])) for row in rows]


def _of_steps(workflow: Workflow, first: str | None) -> str:
    """Return a text in place of the missing name of a workflow."""
    if first is None:
        return str(workflow.pk)
    kind = str(workflow.type)
    return _("%(kind)s of %(type)s") % {"kind": kind, "type": first}


def _first_types(rows: Sequence[Workflow]) -> dict[UUID, str | None]:
    """Return the types of the first steps of the workflows that have no name."""
    unnamed = [row.pk for row in rows if not row.name]
    if not unnamed:
        return {}
    first = WorkflowStep.primary.filter(workflow_id__in=unnamed, position=0, type__isnull=False)
    return dict(first.values_list("workflow_id", "type"))


def _why_it_waits(steps: Sequence[StepRow], may_see: bool) -> tuple[StepRow, str] | None:
    """Return a step and what it waits for, in a sentence; None if a job of the workflow runs."""
    if any(step.job_state == State.ACTIVE for step in steps):
        return None
    for step in steps:
        if step.state == StepState.ENQUEUED:
            job = Job.primary.filter(pk=step.id).first()
            reason = None if job is None else why_not_running(job, may_see=may_see)
            if reason is not None:
                return step, reason.sentence
    ready = next((step for step in steps if step.state == StepState.READY), None)
    return None if ready is None else (ready, _("It starts when a worker enqueues its job."))


def _took(began: datetime | None, ended: datetime | None) -> timedelta | None:
    return None if began is None else elapsed(began, ended or timezone.now())


def _times(keys: Sequence[UUID]) -> dict[UUID, tuple[datetime | None, timedelta | None]]:
    """Return when these steps started, and how long they took, or have run so far."""
    rows = WorkflowStep.primary.filter(pk__in=keys).values_list("pk", "started_at", "finished_at")
    found = {key: (began, ended) for key, began, ended in rows}
    going_on = [key for key, (_began, ended) in found.items() if ended is None]
    running = Job.primary.filter(OneOf("pk", going_on), state=State.ACTIVE)
    for key, began in running.values_list("pk", "started_at") if going_on else ():
        found[key] = began, None
    return {
        key: (began, _took(began, ended))
        for key, (began, ended) in found.items()
        if began is not None
    }


def _errors(keys: Sequence[UUID]) -> dict[UUID, Any]:
    """Return the errors of the steps that failed."""
    found = WorkflowStep.primary.filter(pk__in=keys, error__isnull=False)
    return {key: redacted(error) for key, error in found.values_list("pk", "error")}
