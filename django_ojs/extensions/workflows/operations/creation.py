"""Create workflows: store the graph, and enqueue the jobs of the steps that wait for nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, connections

from django_ojs import hooks
from django_ojs.conf import of, settings
from django_ojs.extensions.workflows import workflow_events
from django_ojs.extensions.workflows.models import StepState, Workflow, WorkflowStep
from django_ojs.extensions.workflows.operations import starting
from django_ojs.extensions.workflows.settings import WorkflowSettings
from django_ojs.extensions.workflows.spec import Graph, GraphStep
from django_ojs.hooks import publish_all
from django_ojs.operations.enqueue import caller_database, parents
from django_ojs.operations.enqueue.result import Outcome
from django_ojs.spec import ids
from django_ojs.spec.envelope import Envelope, parse
from django_ojs.spec.errors import Conflict, DuplicateJob, InvalidRequest
from django_ojs.storage import database

#: Functions that get the type of a new workflow and the position of a step. They return members
#: to add to the `meta` of the step's job; members that the client sent stay.
step_metas: Final[list[Callable[[str, int], Mapping[str, str | int]]]] = []

#: Steps in one INSERT.
_AT_ONCE = 1_000


def check(graph: Graph) -> list[Envelope]:
    """Check a workflow against the limits of this site; return the envelopes of its jobs.

    Raises InvalidRequest.
    """
    values = settings()
    jobs = graph.jobs
    if len(jobs) > (most := of(WorkflowSettings).max_workflow_jobs):
        raise InvalidRequest.of("jobs", f"must be at most {most} in one workflow")
    return [
        parse(_job(step), default_retry=values.default_retry, limits=values.limits) for step in jobs
    ]


def create(graph: Graph, *, has_transaction: bool = True) -> Workflow:
    """Store a workflow and enqueue the jobs of its first steps, in the caller's transaction.

    `has_transaction` is False for a request over HTTP: transactions that are open in this process
    are then not the caller's.

    Raises as `check` does, DuplicateJob when the id is taken, QueueFull when there is no room for
    the first jobs, and Conflict when one of them is a duplicate, or is dropped.
    """
    graph = _with_parent(graph)
    queues = sorted({job.queue for job in check(graph)})
    store = partial(_create_here, graph, queues, has_transaction)
    stand_in = hooks.registry.stand_ins.get("workflows.create")
    kept: Workflow | None = stand_in(graph, queues, store) if stand_in else None
    return store() if kept is None else kept


def _create_here(graph: Graph, queues: list[str], has_transaction: bool) -> Workflow:
    if len(connections.settings) > 1 and has_transaction:
        # This site advances the workflow, so it cannot go through an outbox.
        caller_database.check()
    return _create(_marked(graph), queues)


def _with_parent(graph: Graph) -> Graph:
    """Return the graph with the running job, if there is one, as the parent of all its jobs."""
    parent = parents.of_running_job()
    if not parent:
        return graph
    steps = [
        step if step.job is None else replace(step, job={**parent, **step.job})
        for step in graph.steps
    ]
    return replace(graph, steps=tuple(steps))


def _marked(graph: Graph) -> Graph:
    """Return the graph with the members that `step_metas` add to the `meta` of its jobs."""
    if not step_metas:
        return graph

    def added(position: int) -> dict[str, str | int]:
        return {k: v for made in step_metas for k, v in made(graph.type, position).items()}

    steps = [
        step
        if step.job is None
        else replace(
            step,
            job={
                **step.job,
                "meta": {**added(position), **(step.job.get("meta") or {})},
            },
        )
        for position, step in enumerate(graph.steps)
    ]
    return replace(graph, steps=tuple(steps))


@database.write_transaction
def _create(graph: Graph, queues: list[str]) -> Workflow:
    counted = [step for step in graph.jobs if step.callback is None]
    workflow = Workflow(
        id=graph.id or ids.uuid7(),
        client_id=graph.client_id,
        type=graph.type,
        name=graph.name,
        queues=queues,
        jobs_total=len(counted),
        steps_left=len(graph.steps),
    )
    _insert(workflow, with_id=graph.id is not None or graph.client_id is not None)
    steps = _steps(graph, workflow.pk)
    WorkflowStep.primary.bulk_create(steps, batch_size=_AT_ONCE)
    first = [
        starting.envelope_of(row.pk, workflow.pk, _job(step), [])
        for row, step in zip(steps, graph.steps, strict=True)
        if row.state == StepState.ENQUEUED
    ]
    for result in starting.push(first):
        if result.outcome is not Outcome.STORED:
            raise Conflict(starting.rejection_of(result)["message"])
    workflow.refresh_from_db(using=database.alias())
    publish_all([workflow_events.created(workflow)])
    return workflow


def _insert(workflow: Workflow, *, with_id: bool) -> None:
    """Store the row. Raises DuplicateJob if the id that the client gave it is taken."""
    if not with_id:
        workflow.save(using=database.alias(), force_insert=True)
        return
    try:
        with database.atomic():
            workflow.save(using=database.alias(), force_insert=True)
    except IntegrityError:
        given = workflow.client_id or str(workflow.pk)
        raise DuplicateJob(
            "There is a workflow with this id already.",
            details={"existing_workflow_id": given, "field": "id"},
        ) from None


def _steps(graph: Graph, workflow_id: UUID) -> list[WorkflowStep]:
    positions = {step.key: position for position, step in enumerate(graph.steps)}
    dependents: dict[str, list[int]] = {key: [] for key in positions}
    for position, step in enumerate(graph.steps):
        for key in step.depends_on:
            dependents[key].append(position)
    return [
        WorkflowStep(
            workflow_id=workflow_id,
            position=position,
            key=step.key,
            name=step.name,
            path=step.path,
            type=None if step.job is None else step.job["type"],
            # The job of a first step is stored with the workflow.
            job=dict(step.job) if step.job is not None and step.depends_on else None,
            condition=step.condition,
            callback=step.callback,
            last_result=step.last_result,
            fails_workflow=step.fails_workflow,
            parents=[positions[key] for key in step.parents],
            dependents=dependents[step.key],
            outstanding=len(step.depends_on),
            state=StepState.WAITING if step.depends_on else StepState.ENQUEUED,
        )
        for position, step in enumerate(graph.steps)
    ]


def _job(step: GraphStep) -> Mapping[str, Any]:
    assert step.job is not None
    return step.job
