"""Workflows as clients send them, and a worker that ends their jobs as a test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django_ojs.extensions.events.models import Event
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows.models import Workflow, WorkflowStep
from django_ojs.extensions.workflows.spec.parse import parse
from django_ojs.models import Job
from django_ojs.operations import ack, fail, fetch
from django_ojs.spec.failure import Failure
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.expressions import InWorkflow
from tests.factories import jobs

FATAL = Failure(type="Boom", message="it broke", retryable=False)


def job(type: str, *args: Any, **options: Any) -> dict[str, Any]:
    """Build the job of a step."""
    return {"type": type, "args": list(args), **({"options": options} if options else {})}


def chain(*steps: Any, **values: Any) -> dict[str, Any]:
    return {"type": "chain", "steps": list(steps), **values}


def group(*members: Any, **values: Any) -> dict[str, Any]:
    return {"type": "group", "jobs": list(members), **values}


def batch(*members: Any, **callbacks: Any) -> dict[str, Any]:
    return {"type": "batch", "jobs": list(members), "callbacks": callbacks}


def step(key: str, *depends_on: str, **values: Any) -> dict[str, Any]:
    """Build a step of a graph whose job has the key as its type."""
    return {"id": key, "type": key, "args": [], "depends_on": list(depends_on), **values}


def create(definition: Mapping[str, Any]) -> Workflow:
    """Create a workflow from what a client sends."""
    return workflows.create(parse(definition))


def available() -> list[str]:
    """Return the types of the available jobs, in the order of FETCH."""
    found = jobs().filter(state="available").order_by("-priority", "enqueued_at", "id")
    return list(found.values_list("type", flat=True))


def take(type: str) -> Claimed:
    """Claim the job of this type, which must be available; the others stay as they are."""
    claimed = fetch.fetch(["default"], count=1000, due=False)
    wanted = [each for each in claimed if each.type == type]
    for each in claimed:
        if each not in wanted[:1]:
            fail.requeue(each.id)
    assert wanted, f"{type} is not available; {[each.type for each in claimed]} are"
    return wanted[0]


def finish(type: str, result: Any = None, *, fails: bool = False) -> Claimed:
    """Run the job of this type to its end, and advance what its end lets advance."""
    claimed = take(type)
    if fails:
        fail.fail(claimed.id, FATAL)
    else:
        ack.ack(claimed.id, result=result)
    workflows.advance_due()
    return claimed


def read(workflow: Workflow | UUID) -> Workflow:
    """Return a workflow as it is now."""
    return workflows.get(workflow if isinstance(workflow, UUID) else workflow.pk)


def states(workflow: Workflow) -> dict[str, str]:
    """Return the states of the steps that have a job, by the type of that."""
    return {str(each.type): each.state for each in workflows.steps_of(workflow) if not each.is_join}


def job_of(workflow: Workflow, type: str) -> Job:
    """Return the job of the step with this type."""
    return Job.primary.get(InWorkflow(workflow.pk), type=type)


def step_of(workflow: Workflow, type: str) -> WorkflowStep:
    """Return the step whose job has this type."""
    return workflows.steps_of(workflow).get(type=type)


def events() -> list[str]:
    """Return the types of the recorded events of workflows, oldest first."""
    found = Event.primary.filter(type__startswith="workflow.").order_by("pk")
    return list(found.values_list("type", flat=True))
