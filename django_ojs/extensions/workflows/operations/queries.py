"""Read workflows and their steps."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from django_ojs import hooks
from django_ojs.extensions.workflows.models import StepState, Workflow, WorkflowStep
from django_ojs.extensions.workflows.spec import CALLBACKS
from django_ojs.extensions.workflows.storage import MAX_COPIED
from django_ojs.models import Job
from django_ojs.operations import keyset
from django_ojs.operations.keyset import FIRST_PAGE, Order, Page, PageRequest
from django_ojs.spec.errors import RowLocked, WorkflowNotFound
from django_ojs.spec.json import JSON
from django_ojs.storage import database
from django_ojs.storage.dialects.expressions import OneOf

_LATEST_FIRST: Final[Order] = {"-pk": UUID}

#: Bytes of the results of all steps that are read at once: a workflow may have gigabytes.
MAX_RESULTS: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDetail:
    """A step, and what its job says about it.

    `depends_on` are the names of the steps that it waits for, or their keys if they have no names.
    `attempt` is the job's while the step is enqueued or has failed, else 0. `job` is what the
    client sent, and is set only for the callbacks of the workflow itself. `result` is None if it is
    too large, or if the results before it have used up MAX_RESULTS.
    """

    step: WorkflowStep
    depends_on: list[str]
    job_state: str | None
    started_at: datetime | None
    attempt: int
    job: dict[str, Any] | None
    result: JSON


def page(
    wanted: PageRequest = FIRST_PAGE,
    *,
    state: str | None = None,
    name: str = "",
    within: Collection[str] | None = None,
) -> Page[Workflow]:
    """Return a page of the workflows, the latest first.

    `name` is a part of their names. `within` are the queues that the caller may use: a workflow
    with a job in another queue is left out.
    """
    found = Workflow.primary.all()
    if state is not None:
        found = found.filter(state=state)
    if name:
        found = found.filter(name__contains=name)
    if within is None:
        return keyset.page(found, _LATEST_FIRST, wanted)
    keys = _keys_within(keyset.rest_of(found, _LATEST_FIRST, wanted), within)
    page = keyset.page(found.filter(OneOf("pk", keys)), _LATEST_FIRST, wanted)
    if wanted.cursor is None:
        return page
    latest = found.order_by(*_LATEST_FIRST)
    return replace(page, count=lambda: (len(_keys_within(latest, within)), False))


def _keys_within(rows: QuerySet[Workflow], within: Collection[str]) -> list[UUID]:
    # The queues are compared in Python, because a workflow and a limited caller have few of them.
    allowed = frozenset(within)
    first = rows.values_list("pk", "queues")[: keyset.COUNT_LIMIT]
    return [key for key, queues in first if allowed.issuperset(queues)]


def get(workflow_id: UUID) -> Workflow:
    """Return a workflow. Raises WorkflowNotFound."""
    stand_in = hooks.registry.stand_ins.get("workflows.get")
    kept: Workflow | None = stand_in(workflow_id) if stand_in else None
    if kept is not None:
        return kept
    found = Workflow.primary.filter(pk=workflow_id).first()
    if found is None:
        raise not_found(workflow_id)
    return found


def of_client(client_id: str) -> Workflow:
    """Return the workflow to which its client gave this id. Raises WorkflowNotFound."""
    # PostgreSQL rejects a text with a NUL.
    found = None if "\0" in client_id else Workflow.primary.filter(client_id=client_id).first()
    if found is None:
        raise not_found(client_id if client_id.isprintable() else "")
    return found


def lock(workflow_id: UUID) -> Workflow:
    """Return a workflow, locked until the transaction ends.

    Raises WorkflowNotFound, and within `database.passing_by` also RowLocked.
    """
    which = Workflow.primary.filter(pk=workflow_id)
    skips = database.passes_by()
    found = which.select_for_update(no_key=True, skip_locked=skips).first()
    if found is None:
        if skips and which.exists():
            raise RowLocked("Another session has locked the workflow; try again.")
        raise not_found(workflow_id)
    return found


def not_found(workflow_id: object) -> WorkflowNotFound:
    """Return the error for an unknown workflow."""
    details = {"resource_type": "workflow", "resource_id": str(workflow_id)}
    return WorkflowNotFound("There is no workflow with this id.", details=details)


def step_ids(workflow_id: UUID) -> list[UUID]:
    """Return the ids of the jobs of a workflow, in the topological order of its graph."""
    stand_in = hooks.registry.stand_ins.get("workflows.step_ids")
    kept: list[UUID] | None = stand_in(workflow_id) if stand_in else None
    if kept is not None:
        return kept
    steps = WorkflowStep.primary.filter(workflow_id=workflow_id, type__isnull=False)
    return list(steps.order_by("position").values_list("pk", flat=True))


def steps_of(workflow: Workflow) -> QuerySet[WorkflowStep]:
    """Return the steps of a workflow, in the topological order of its graph, joins included."""
    return WorkflowStep.primary.filter(workflow_id=workflow.pk).order_by("position")


def details(workflow: Workflow, *, nested: bool = False) -> list[StepDetail]:
    """Return the steps of a workflow that have a job, with details of their jobs, in order.

    With `nested`, the steps that stand for nested workflows are included, each after its parts.
    """
    steps = list(steps_of(workflow).defer("job", "parents", "result"))
    results = _results(steps)
    sent = _callbacks(workflow) if any(step.callback for step in steps) else {}
    depends_on: dict[int, list[str]] = {step.position: [] for step in steps}
    for step in steps:
        for position in step.dependents:
            depends_on[position].append(step.name or step.key)
    keys = [
        step.pk
        for step in steps
        if step.state in (StepState.ENQUEUED, StepState.FAILED) and step.type
    ]
    jobs = Job.primary.filter(OneOf("pk", keys))
    known = {row[0]: row[1:] for row in jobs.values_list("pk", "state", "started_at", "attempt")}
    found = []
    for step in steps:
        if not step.is_join or (nested and step.stands_for_nested):
            state, started_at, attempt = known.get(step.pk, (None, None, 0))
            found.append(
                StepDetail(
                    step=step,
                    depends_on=depends_on[step.position],
                    job_state=state if step.state == StepState.ENQUEUED else None,
                    started_at=step.started_at or started_at,
                    attempt=attempt,
                    job=sent.get(step.pk),
                    result=results.get(step.pk),
                )
            )
    return found


def _results(steps: Iterable[WorkflowStep]) -> dict[UUID, JSON]:
    """Return the results of the steps, in their order, as long as they fit in MAX_RESULTS."""
    room = MAX_RESULTS
    keys = []
    for step in steps:
        # A larger result may be missing from the step.
        if step.result_size is not None and step.result_size <= min(MAX_COPIED, room):
            room -= step.result_size
            keys.append(step.pk)
    found = WorkflowStep.primary.filter(OneOf("pk", keys)) if keys else WorkflowStep.primary.none()
    return dict(found.values_list("pk", "result"))


def _callbacks(workflow: Workflow) -> dict[UUID, Any]:
    """Return the jobs of the callbacks of the workflow itself, whose keys have no prefix."""
    return dict(steps_of(workflow).filter(key__in=CALLBACKS).values_list("pk", "job"))
