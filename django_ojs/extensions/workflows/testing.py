"""Workflows in tests: how they are recorded in memory, and cleared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from django.utils import timezone

from django_ojs.extension import ForTests
from django_ojs.extensions.workflows.models import (
    EndedWorkflowJob,
    Workflow,
    WorkflowState,
    WorkflowStep,
)
from django_ojs.extensions.workflows.operations.cancel_workflow import check_running
from django_ojs.extensions.workflows.operations.queries import not_found
from django_ojs.extensions.workflows.operations.starting import envelope_of
from django_ojs.extensions.workflows.spec import Graph
from django_ojs.spec import ids

if TYPE_CHECKING:
    from django_ojs.testing.recorder import Recorder


def _create(
    recorder: Recorder, graph: Graph, queues: Sequence[str], store: Callable[[], Workflow]
) -> Workflow:
    """Record the workflow, and the jobs of its first steps; later steps never start."""
    now = timezone.now()
    workflow = Workflow(
        id=graph.id or ids.uuid7(),
        client_id=graph.client_id,
        type=graph.type,
        name=graph.name,
        queues=list(queues),
        jobs_total=len([step for step in graph.jobs if step.callback is None]),
        steps_left=len(graph.steps),
        created_at=now,
        started_at=now,
    )
    steps = [(ids.uuid7(), step) for step in graph.jobs]
    first = [
        envelope_of(key, workflow.pk, step.job, [])
        for key, step in steps
        if step.job is not None and not step.depends_on
    ]
    recorder.record(first, batch=True)
    recorder.others[workflow.pk] = (workflow, [key for key, _ in steps])
    return workflow


def _get(recorder: Recorder, workflow_id: UUID) -> Workflow:
    return _found(recorder, workflow_id)[0]


def _step_ids(recorder: Recorder, workflow_id: UUID) -> list[UUID]:
    return _found(recorder, workflow_id)[1] if workflow_id in recorder.others else []


def _cancel(recorder: Recorder, workflow_id: UUID) -> Workflow:
    workflow, steps = _found(recorder, workflow_id)
    check_running(workflow)
    workflow.state, workflow.finished_at = WorkflowState.CANCELLED, timezone.now()
    workflow.steps_left = 0
    known = {job.pk for job in recorder.jobs()}
    for job_id in known.intersection(steps):
        recorder.cancel(job_id)
    return workflow


def _found(recorder: Recorder, workflow_id: UUID) -> tuple[Workflow, list[UUID]]:
    if workflow_id not in recorder.others:
        raise not_found(workflow_id)
    found: tuple[Workflow, list[UUID]] = recorder.others[workflow_id]
    return found


def _cleared(jobs: Collection[UUID]) -> None:
    # A step has the id of its job. Workflows go before the jobs, whose deletion would fail them.
    steps = WorkflowStep.primary.filter(pk__in=jobs)
    begun = set(steps.values_list("workflow_id", flat=True))
    for model in (EndedWorkflowJob, WorkflowStep):
        model.primary.filter(workflow_id__in=begun).delete()
    Workflow.primary.filter(pk__in=begun).delete()


FOR_TESTS: Final = ForTests(
    recorded={
        "workflows.create": _create,
        "workflows.get": _get,
        "workflows.step_ids": _step_ids,
        "workflows.cancel": _cancel,
    },
    cleared=_cleared,
)
