"""The statements that advance workflows, each for many steps."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Now

from django_ojs.extensions.workflows import mariadb
from django_ojs.extensions.workflows.expressions import AtPlaces
from django_ojs.extensions.workflows.models import (
    EndedWorkflowJob,
    StepState,
    Workflow,
    WorkflowState,
    WorkflowStep,
)
from django_ojs.extensions.workflows.spec import StepOutcome
from django_ojs.spec import json
from django_ojs.spec.states import State
from django_ojs.storage import database, in_memory_state, raw_queries
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.statements import Statements

#: Where a step is: its workflow, and its position there.
Place = tuple[UUID, int]

_STATEMENTS: Final = Statements(Path(__file__).parent / "statements")

#: The most characters of a result that is copied to its step. Whether it is inlined depends on its
#: bytes, which are measured later.
MAX_COPIED: Final = 128 * 1024

_STATES: Final = {
    State.COMPLETED.value: StepState.COMPLETED,
    State.CANCELLED.value: StepState.CANCELLED,
}


def take_ended_jobs(
    workflow_ids: Collection[UUID], limit: int
) -> dict[UUID, dict[UUID, StepState]]:
    """Take up to `limit` rows out of the journal of workflows, which the caller has locked.

    Return by workflow how each of its steps ended. A job that was retried by hand ends twice; its
    first end counts.
    """
    dialect = database.dialect()
    if _is_mariadb():
        rows = mariadb.take_ended_jobs(workflow_ids, limit)
    else:
        values = {"workflow_ids": dialect.ids(workflow_ids), "limit": limit}
        rows = sorted(_STATEMENTS.rows("take_ended_jobs", values))
    ended: defaultdict[UUID, dict[UUID, StepState]] = defaultdict(dict)
    for _, workflow_id, job_id, state in rows:
        how = _STATES.get(state, StepState.FAILED)
        ended[dialect.uuid(workflow_id)].setdefault(dialect.uuid(job_id), how)
    return ended


@dataclass(frozen=True, slots=True)
class EndedStep:
    """A step that has ended.

    It lacks the columns that only the job needs, because a group may have thousands of steps.
    """

    pk: UUID
    workflow_id: UUID
    position: int
    key: str
    type: str | None
    state: str
    callback: str | None
    fails_workflow: bool
    dependents: list[int]
    error: dict[str, Any] | None
    started_at: datetime | None
    finished_at: datetime | None


def end_steps(ended: Mapping[UUID, StepState]) -> list[EndedStep]:
    """End the steps that are still enqueued, with the results of their jobs; return them."""
    values = {"most": MAX_COPIED, "completed": State.COMPLETED.value}
    if _is_mariadb():
        keys = mariadb.end_steps(_STATEMENTS, ended, values)
    else:
        items = [{"id": str(key), "state": state.value} for key, state in ended.items()]
        found = _STATEMENTS.rows("end_steps", {**values, "ended": json.dumps(items)})
        keys = [database.dialect().uuid(key) for (key,) in found]
    rows = WorkflowStep.primary.filter(OneOf("pk", keys)).values_list(*EndedStep.__slots__)
    return [EndedStep(*row) for row in rows]


def at_places(places: Collection[Place]) -> list[WorkflowStep]:
    """Return the steps at these places, in order."""
    if not places:
        return []
    return list(WorkflowStep.primary.filter(AtPlaces(places)).order_by("workflow_id", "position"))


def note_dependencies(
    steps: Iterable[WorkflowStep], ended: Mapping[Place, Mapping[StepOutcome, int]]
) -> None:
    """Count on steps how many of their dependencies ended, by place and outcome."""
    groups: dict[tuple[tuple[StepOutcome, int], ...], list[UUID]] = {}
    for step in steps:
        counts = ended[step.workflow_id, step.position]
        groups.setdefault(tuple(sorted(counts.items())), []).append(step.pk)
        step.outstanding -= sum(counts.values())
        for outcome, count in counts.items():
            setattr(step, outcome.value, getattr(step, outcome.value) + count)
    for counted, keys in groups.items():
        values = {outcome.value: F(outcome.value) + count for outcome, count in counted}
        number = sum(count for _, count in counted)
        WorkflowStep.primary.filter(OneOf("pk", keys)).update(
            outstanding=F("outstanding") - number, **values
        )


def set_state(steps: Sequence[WorkflowStep], state: StepState) -> None:
    """Set the state of steps, and the time of their end if the state is a final one."""
    if not steps:
        return
    values = {} if state in _OPEN else {"finished_at": Now()}
    WorkflowStep.primary.filter(OneOf("pk", [step.pk for step in steps])).update(
        state=Value(state.value), **values
    )
    for step in steps:
        step.state = state


def try_again(step: WorkflowStep, error: Mapping[str, Any], delay: timedelta) -> None:
    """Store that the job of a step could not be enqueued; it is tried again after a delay."""
    WorkflowStep.primary.filter(pk=step.pk).update(
        state=StepState.READY.value,
        error=dict(error),
        start_failures=F("start_failures") + 1,
        start_after=Now() + delay,
    )


def ready_steps() -> QuerySet[WorkflowStep]:
    """Return the steps whose jobs may be enqueued now, of all workflows."""
    return WorkflowStep.primary.filter(
        Q(start_after__isnull=True) | Q(start_after__lte=Now()), state=StepState.READY
    )


def save(workflows: Collection[Workflow]) -> None:
    """Store how far workflows are, and set on them when they started and when they ended."""
    names = ("steps_left", "has_failed", "jobs_completed", "jobs_failed", "state")
    values = [
        {"id": str(each.pk), **{name: getattr(each, name) for name in names}} for each in workflows
    ]
    running = WorkflowState.RUNNING.value
    if _is_mariadb():
        stored = mariadb.save(_STATEMENTS, values, running)
    else:
        given = {"workflows": json.dumps(values), "running": running}
        stored = _STATEMENTS.rows("save", given)
    dialect = database.dialect()
    times = {
        dialect.uuid(key): (dialect.time(start), dialect.time(end)) for key, start, end in stored
    }
    for workflow in workflows:
        workflow.started_at, workflow.finished_at = times[workflow.pk]


def _is_mariadb() -> bool:
    return database.dialect().name == "mariadb"


_OPEN: Final = frozenset({StepState.WAITING, StepState.READY, StepState.ENQUEUED})


class DueWorkflows:
    """The workflows in which a job has ended, or a step could not be enqueued before.

    They take turns in the order of their ids, so that many workflows that cannot advance now,
    because their queues are full, do not keep the others from advancing.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._ended_after: UUID | None = None
        self._ready_after: UUID | None = None

    def next(self, limit: int) -> list[UUID]:
        """Return up to `limit` workflows of each of the two kinds."""
        if not raw_queries.holds(due_condition()):
            return []
        ended = _from_cursor(EndedWorkflowJob.primary.all(), self._ended_after, limit)
        self._ended_after = ended[-1] if len(ended) == limit else None
        ready = _from_cursor(ready_steps(), self._ready_after, limit)
        self._ready_after = ready[-1] if len(ready) == limit else None
        return list(dict.fromkeys(ended + ready))


due: Final = in_memory_state.register(DueWorkflows())


def due_condition() -> str:
    """Return the SQL condition that there is a due workflow."""
    ready = (
        f"state = '{StepState.READY.value}'"
        f" AND (start_after IS NULL OR start_after <= {database.dialect().now})"
    )
    ended = raw_queries.condition(EndedWorkflowJob, "true")
    return f"({ended} OR {raw_queries.condition(WorkflowStep, ready)})"


def _from_cursor(rows: QuerySet[Any], after: UUID | None, limit: int) -> list[UUID]:
    """Return the workflows of some rows, first those after the cursor, then the others."""
    keys = rows.order_by("workflow_id").values_list("workflow_id", flat=True).distinct()
    if after is None:
        return list(keys[:limit])
    found = list(keys.filter(workflow_id__gt=after)[:limit])
    if len(found) < limit:
        found += keys.filter(workflow_id__lte=after)[: limit - len(found)]
    return found


def with_ended_jobs(workflow_ids: Collection[UUID]) -> list[UUID]:
    """Return which of these workflows have rows in the journal."""
    rows = EndedWorkflowJob.primary.filter(OneOf("workflow_id", workflow_ids))
    return list(rows.values_list("workflow_id", flat=True).distinct())
