"""The statements of workflows on MariaDB, whose UPDATE returns no rows.

Each of these functions is a part of the caller's transaction.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from django_ojs.extensions.workflows.models import (
    EndedWorkflowJob,
    StepState,
    Workflow,
    WorkflowStep,
)
from django_ojs.storage import database
from django_ojs.storage.statements import Statements


def take_ended_jobs(workflow_ids: Collection[UUID], limit: int) -> list[tuple[Any, ...]]:
    """Take the oldest rows of some workflows, except those that open transactions have locked."""
    rows = EndedWorkflowJob.primary.filter(workflow_id__in=workflow_ids).order_by("id")
    locked = rows.select_for_update(skip_locked=True)[:limit]
    found = list(locked.values_list("id", "workflow_id", "job_id", "state"))
    EndedWorkflowJob.primary.filter(pk__in=[row[0] for row in found]).delete()
    return found


def save(
    statements: Statements, values: Sequence[Mapping[str, Any]], running: str
) -> list[tuple[Any, ...]]:
    """Store how far workflows are. Return when they started and ended, by id."""
    for each in values:
        statements.rows("save", {**each, "running": running})
    saved = Workflow.primary.filter(pk__in=[each["id"] for each in values])
    return list(saved.values_list("pk", "started_at", "finished_at"))


def end_steps(
    statements: Statements, ended: Mapping[UUID, StepState], values: Mapping[str, Any]
) -> list[UUID]:
    """End the steps that are still enqueued, and return their ids."""
    steps = WorkflowStep.primary.filter(pk__in=ended, state=StepState.ENQUEUED).order_by("pk")
    found = list(steps.select_for_update().values_list("pk", flat=True))
    by_state: defaultdict[StepState, list[UUID]] = defaultdict(list)
    for key in found:
        by_state[ended[key]].append(key)
    for state, keys in by_state.items():
        given = {"state": state.value, "keys": database.dialect().ids(keys)}
        statements.rows("end_steps", {**values, **given})
    return found
