"""The progress of a workflow (ojs-progress §9), computed from its steps and their jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django_ojs.extensions.workflows.models import StepState, Workflow, WorkflowState
from django_ojs.extensions.workflows.operations.queries import steps_of
from django_ojs.models import Job
from django_ojs.spec.progress import NOTHING, Progress, shown
from django_ojs.storage.dialects.expressions import OneOf

#: The most jobs whose data is read with their progress, because it may be 64 KiB each.
MAX_DATA: Final = 100

_COLUMNS: Final = ("pk", "type", "state")
_WITH_JOB: Final = (StepState.ENQUEUED, StepState.FAILED)
_DONE: Final = (StepState.COMPLETED, StepState.SKIPPED)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepProgress:
    """The progress of a step. `job_state` is the state of its job until the job ends."""

    job_id: UUID
    type: str
    state: str
    job_state: str | None
    reported: Progress

    @property
    def share(self) -> float:
        """How much of the step is done, from 0 to 1; a step that is skipped is done."""
        return 1.0 if self.state in _DONE else self.reported.progress or 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowProgress:
    """The progress of a workflow, and of its steps that have a job and are no callbacks."""

    progress: float
    steps: list[StepProgress]


def progress_of(workflow: Workflow) -> WorkflowProgress:
    """Return the progress of a workflow: the mean of its steps, or a batch's completed share."""
    rows = steps_of(workflow).filter(type__isnull=False, callback__isnull=True)
    found = list(rows.values_list(*_COLUMNS))
    jobs = _jobs([key for key, _, state in found if state in _WITH_JOB])
    steps = [_step(key, type, state, jobs.get(key)) for key, type, state in found]
    return WorkflowProgress(progress=_total(workflow, steps), steps=steps)


def _step(key: UUID, type: str, state: str, job: tuple[str, Progress] | None) -> StepProgress:
    reported = NOTHING if job is None else job[1]
    return StepProgress(
        job_id=key,
        type=type,
        state=state,
        job_state=job[0] if job is not None and state == StepState.ENQUEUED else None,
        reported=Progress(progress=1.0) if state == StepState.COMPLETED else reported,
    )


def _total(workflow: Workflow, steps: list[StepProgress]) -> float:
    if workflow.state == WorkflowState.COMPLETED:
        return 1.0
    if workflow.type == "batch":
        return workflow.jobs_completed / max(1, workflow.jobs_total)
    return sum(step.share for step in steps) / max(1, len(steps))


def _jobs(keys: list[UUID]) -> Mapping[UUID, tuple[str, Progress]]:
    """Return the state and the progress of these jobs."""
    jobs = Job.primary.filter(OneOf("pk", keys))
    if len(keys) <= MAX_DATA:
        whole = jobs.values_list("pk", "state", "progress", "run", "attempt")
        return {
            key: (state, shown(stored, run=run, attempt=attempt, state=state))
            for key, state, stored, run, attempt in whole
        }
    names = ("pk", "state", "progress__run", "progress__progress", "run", "attempt")
    found: dict[UUID, tuple[str, Progress]] = {}
    for key, state, of_run, share, run, attempt in jobs.values_list(*names):
        stored: dict[str, Any] = {"run": of_run, "progress": share}
        found[key] = state, shown(stored, run=run, attempt=attempt, state=state)
    return found
