"""Read workflows and their steps."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from django_ojs.models import Workflow, WorkflowStep
from django_ojs.spec.errors import WorkflowNotFound
from django_ojs.storage import interceptor


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowPage:
    """A page of the workflows, the latest first."""

    workflows: list[Workflow]
    has_more: bool


def page(
    *,
    before: UUID | None = None,
    offset: int = 0,
    limit: int,
    state: str | None = None,
    within: Collection[str] | None = None,
) -> WorkflowPage:
    """Return the workflows that were created before `before`, without the first `offset`.

    `within` are the queues that the caller may use: a workflow with a job in another is left out.
    """
    found = Workflow.primary.order_by("-id")
    if state is not None:
        found = found.filter(state=state)
    if before is not None:
        found = found.filter(pk__lt=before)
    if within is None:
        rows = list(found[offset : offset + limit + 1])
    else:
        allowed = frozenset(within)
        rows = []
        for row in found.iterator(chunk_size=1_000):
            if allowed.issuperset(row.queues):
                rows.append(row)
                if len(rows) > offset + limit:
                    break
        rows = rows[offset:]
    return WorkflowPage(workflows=rows[:limit], has_more=len(rows) > limit)


def get(workflow_id: UUID) -> Workflow:
    """Return a workflow. Raises WorkflowNotFound."""
    active = interceptor.current()
    kept = None if active is None else active.workflow(workflow_id)
    if kept is not None:
        return kept
    found = Workflow.primary.filter(pk=workflow_id).first()
    if found is None:
        raise not_found(workflow_id)
    return found


def lock(workflow_id: UUID) -> Workflow:
    """Return a workflow, locked until the transaction ends. Raises WorkflowNotFound."""
    found = Workflow.primary.select_for_update(no_key=True).filter(pk=workflow_id).first()
    if found is None:
        raise not_found(workflow_id)
    return found


def not_found(workflow_id: object) -> WorkflowNotFound:
    """Return the error for an unknown workflow."""
    details = {"resource_type": "workflow", "resource_id": str(workflow_id)}
    return WorkflowNotFound("There is no workflow with this id.", details=details)


def steps_of(workflow: Workflow) -> QuerySet[WorkflowStep]:
    """The steps of a workflow, in the topological order of its graph, joins included."""
    return WorkflowStep.primary.filter(workflow_id=workflow.pk).order_by("position")
