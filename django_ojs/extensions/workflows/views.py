"""Workflows: create, list, read and cancel them (ojs-workflows §11, http-binding §14)."""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from django_ojs.conf import settings
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows.models import StepState, Workflow, WorkflowState
from django_ojs.extensions.workflows.operations import StepDetail, StepProgress
from django_ojs.extensions.workflows.spec import Condition
from django_ojs.extensions.workflows.spec.definition import known_id
from django_ojs.extensions.workflows.spec.parse import parse
from django_ojs.http import fields, pagination
from django_ojs.http.responses import json_response
from django_ojs.http.views.base import OJSView
from django_ojs.http.views.history import history_of
from django_ojs.http.views.jobs import check_access
from django_ojs.operations import keyset
from django_ojs.spec.failure import with_code
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp

#: The specification's states. It has none for a step whose condition was not met: such a step is
#: cancelled, with a reason.
_STATES: Final[Mapping[str, str]] = {
    StepState.WAITING: "waiting",
    StepState.READY: "waiting",
    StepState.ENQUEUED: "pending",
    StepState.SKIPPED: "cancelled",
}

#: The path of a step of the workflow itself; `steps[0].callbacks.on_failure` is in a nested one.
_TOP_LEVEL_STEP: Final = re.compile(r"steps\[\d+\]")
#: The index of a step in its list; a callback has none.
_INDEX: Final = re.compile(r"\[(\d+)\]\Z")


class Workflows(OJSView):
    """List the workflows in the queues of the caller, latest first, and create one (§11.1)."""

    needs = {"GET": Scope.READ, "POST": Scope.PRODUCER}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        query = request.GET
        state = fields.choice(query, "state", WorkflowState.values, "") or None
        read = partial(workflows.page, state=state, within=self.access.queues)
        found = pagination.listed(query, "workflows", read, _summary)
        return {**found, "count": len(found["workflows"])}

    def post(self, request: HttpRequest) -> HttpResponse:
        """Create a workflow, and start it."""
        graph = parse(self.body(), limits=settings().limits)
        jobs = workflows.check(graph)
        for job in jobs:
            check_access(job, self.access)
        self.make_known(queues={job.queue for job in jobs}, types={job.type for job in jobs})
        workflow = workflows.create(graph, has_transaction=False)
        location = {"Location": f"{request.path}/{workflow.pk}"}
        return json_response(_response(workflow), 201, location)


class WorkflowView(OJSView):
    """The base class of the routes of one workflow."""

    def find(self, key: str) -> Workflow:
        """Return a workflow that the caller may use. Raises NotFound, PermissionDenied."""
        known = known_id(key)
        workflow = workflows.of_client(key) if known is None else workflows.get(known)
        for queue in workflow.queues:
            self.access.check_queue(queue)
        return workflow


class WorkflowDetail(WorkflowView):
    """One workflow (§11.2, §11.3)."""

    needs = {"GET": Scope.READ, "DELETE": Scope.OPERATOR}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return _response(self.find(key))

    def delete(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """Cancel the workflow, with its jobs that have not ended."""
        return _response(workflows.cancel(self.find(key).pk))


class WorkflowProgressDetail(WorkflowView):
    """The progress of a workflow and of its steps (ojs-progress §9.2)."""

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest, key: str) -> HttpResponse:
        workflow = self.find(key)
        found = workflows.progress_of(workflow)
        data = {
            "workflow_id": str(workflow.pk),
            "type": workflow.type,
            "state": str(workflow.state),
            "progress": found.progress,
            "steps": [_step_progress(step) for step in found.steps],
        }
        headers = {"Cache-Control": "no-cache", "X-OJS-Progress": str(found.progress)}
        return json_response(data, headers=headers)


class WorkflowHistory(WorkflowView):
    """The events of a workflow, oldest first (§3.3); the specification has no route for them."""

    needs = {"GET": Scope.READ}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        wanted = pagination.cursor_page(request.GET)
        workflow = self.find(key)
        events = workflows.history_of(workflow)
        page = keyset.page_of_all(events, {"time": datetime, "order": int}, wanted)
        return history_of([event.render(workflow) for event in page.rows], page)


def _step_progress(step: StepProgress) -> dict[str, Any]:
    active = step.job_state == State.ACTIVE
    out: dict[str, Any] = {
        "job_id": str(step.job_id),
        "type": step.type,
        "state": "active" if active else _STATES.get(step.state, step.state),
        "progress": step.reported.progress,
    }
    if step.reported.data is not None:
        out["data"] = step.reported.data
    return out


def _response(workflow: Workflow) -> dict[str, Any]:
    """Return a workflow with its steps, as its client nested them.

    Its steps, its metadata and its scalars are also at the top level, where some clients read them.
    """
    details = workflows.details(workflow, nested=True)
    # The row has a start time only after a job has ended.
    begun = [each.started_at for each in details if each.started_at is not None]
    summary = _summary(workflow, started_at=min(begun, default=None))
    parts = _Parts(details).of("")
    # Every type has `steps`, as in the HTTP binding, and its own list.
    shown = {**summary, _list_of(workflow.type): parts["steps"], **parts}
    if errors := _errors(details, parts["steps"]):
        shown["error"] = errors
    if workflow.state == WorkflowState.CANCELLED:
        jobs = [each.step for each in details if each.step.callback is None or _is_listed(each)]
        states = [_STATES.get(step.state, step.state) for step in jobs if not step.is_join]
        shown["steps_cancelled"] = states.count("cancelled")
        shown["steps_already_completed"] = states.count("completed")
    return {**summary, "steps": parts["steps"], "workflow": shown}


class _Parts:
    """The parts of a workflow and of nested workflows, by the key of the workflow they are in."""

    def __init__(self, details: list[StepDetail]) -> None:
        self._parts: dict[str, list[StepDetail]] = {}
        for each in details:
            self._parts.setdefault(each.step.key.rpartition(".")[0], []).append(each)

    def of(self, key: str) -> dict[str, Any]:
        """Return the steps in the order of the client, and the callbacks if there are any."""
        found = self._parts.get(key, [])
        steps = [
            self._nested(each) if each.step.is_join else _step(each)
            for each in found
            if each.step.callback is None or _is_listed(each)
        ]
        out: dict[str, Any] = {"steps": sorted(steps, key=lambda step: step["index"])}
        callbacks = {
            each.step.callback: {**_job_of(each), **_step(each)}
            for each in found
            if each.step.callback is not None
        }
        return {**out, "callbacks": callbacks} if callbacks else out

    def _nested(self, detail: StepDetail) -> dict[str, Any]:
        """Return a nested workflow, which has a state of its own (§10.4)."""
        out = {**_step(detail), "type": _type_of(detail), "job_id": None}
        parts = self.of(detail.step.key)
        states = {each["state"] for each in parts["steps"]}
        if detail.step.state == StepState.WAITING and states != {"waiting"}:
            out["state"] = "running"
        parts[_list_of(out["type"])] = parts.pop("steps")
        return {**out, **parts}


def _type_of(detail: StepDetail) -> str:
    """Return the type of a nested workflow, by the fields of its join."""
    if detail.step.last_result:
        return "chain"
    return "batch" if detail.step.condition == Condition.NONE_FAILED else "group"


def _list_of(type: str) -> str:
    return "steps" if type in ("chain", "graph") else "jobs"


def _summary(workflow: Workflow, *, started_at: datetime | None = None) -> dict[str, Any]:
    times = {"created_at": workflow.created_at, "started_at": workflow.started_at or started_at}
    if workflow.finished_at is not None:
        is_cancelled = workflow.state == WorkflowState.CANCELLED
        times["cancelled_at" if is_cancelled else "completed_at"] = workflow.finished_at
    moments = {name: format_timestamp(at) for name, at in times.items() if at is not None}
    kind = _list_of(workflow.type)
    client_id = {} if workflow.client_id is None else {"client_id": workflow.client_id}
    return {
        "id": str(workflow.pk),
        **client_id,
        "type": workflow.type,
        "name": workflow.name or "",
        "state": workflow.state,
        f"{kind}_total": workflow.jobs_total,
        f"{kind}_completed": workflow.jobs_completed,
        **moments,
        "metadata": {
            **moments,
            "job_count": workflow.jobs_total,
            "completed_count": workflow.jobs_completed,
            "failed_count": workflow.jobs_failed,
        },
    }


def _is_listed(detail: StepDetail) -> bool:
    """Whether a callback was sent as a step of a graph, where its client looks for it."""
    return _TOP_LEVEL_STEP.fullmatch(detail.step.path) is not None


def _step(detail: StepDetail) -> dict[str, Any]:
    step = detail.step
    index = _INDEX.search(step.path)
    state = _STATES.get(step.state, step.state)
    if detail.job_state == State.ACTIVE:
        state = "active"
    has_started = step.state not in (StepState.WAITING, StepState.READY, StepState.SKIPPED)
    out: dict[str, Any] = {} if index is None else {"index": int(index[1])}
    if step.name is not None:
        out |= {"id": step.name, "name": step.name}
    out |= {
        "key": step.key,
        "type": step.type,
        "state": state,
        "job_id": str(step.pk) if has_started else None,
    }
    if step.callback is None:
        out["depends_on"] = detail.depends_on
    if step.state == StepState.SKIPPED:
        out["reason"] = "condition_not_met"
    if detail.result is not None:
        out["result"] = detail.result
    elif step.result_size is not None:
        out["result"] = workflows.reference(step)
    if step.error:
        out["error"] = with_code(step.error)
    if detail.started_at is not None:
        out["started_at"] = format_timestamp(detail.started_at)
    if step.finished_at is not None:
        out["completed_at"] = format_timestamp(step.finished_at)
    return out


def _job_of(detail: StepDetail) -> dict[str, Any]:
    job = detail.job or {}
    return {name: job[name] for name in ("type", "args", "meta", "options") if name in job}


def _errors(details: list[StepDetail], steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return which jobs failed, and why (§9.6), or nothing if none did.

    There is no index if only callbacks failed that are not listed as steps.
    """
    steps_that_failed = [each["index"] for each in steps if each["state"] == "failed"]
    jobs = [each for each in details if not each.step.is_join]
    failed = [each for each in jobs if each.step.state == StepState.FAILED]
    if not failed:
        return {}
    out: dict[str, Any] = {
        "failed_job_ids": [str(each.step.pk) for each in failed],
        "errors": [_error(each) for each in failed],
    }
    return {"failed_step_index": steps_that_failed[0], **out} if steps_that_failed else out


def _error(detail: StepDetail) -> dict[str, Any]:
    error = with_code(detail.step.error or {})
    out = {
        "job_id": str(detail.step.pk),
        "code": error.get("code", "handler_error"),
        "message": error.get("message", ""),
        "attempt": detail.attempt,
    }
    if detail.step.callback is not None:
        out["callback"] = detail.step.callback
    return out
