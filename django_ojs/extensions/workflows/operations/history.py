"""The history of a workflow (ojs-execution-history §3.3).

It is computed from the rows of the workflow, so nothing else is stored, and it is deleted with the
workflow.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django_ojs.extensions.workflows.models import StepState, Workflow
from django_ojs.extensions.workflows.operations.queries import steps_of
from django_ojs.spec import times
from django_ojs.spec.times import milliseconds_between

_COLUMNS: Final = ("pk", "position", "callback", "state", "finished_at")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowEvent:
    """An event of a workflow. `job_id` is its first job, the completed job, or the last to end."""

    order: int
    type: str
    time: datetime
    job_id: UUID
    data: dict[str, Any]

    def render(self, workflow: Workflow) -> dict[str, Any]:
        """Return the event as the specification defines it."""
        return {
            "id": f"evt_{workflow.pk}.{self.order}",
            "job_id": str(self.job_id),
            "workflow_id": str(workflow.pk),
            "event_type": self.type,
            "timestamp": times.format_timestamp(self.time),
            "data": self.data,
        }


def history_of(workflow: Workflow) -> list[WorkflowEvent]:
    """Return the events of a workflow, oldest first."""
    steps = list(steps_of(workflow).filter(type__isnull=False).values_list(*_COLUMNS))
    if not steps:  # It is being pruned: its steps are deleted first.
        return []
    first = last = steps[0][0]
    found = [
        WorkflowEvent(
            order=0,
            type="workflow.created",
            time=workflow.created_at,
            job_id=first,
            data={"workflow_type": workflow.type, "total_jobs": workflow.jobs_total},
        )
    ]
    index = 0
    ended: list[tuple[datetime, UUID]] = []
    for key, position, callback, state, finished_at in steps:
        data: dict[str, Any] = {"job_id": str(key)}
        if callback is None:
            data["step_index"] = index
            index += 1
        else:
            data["callback"] = callback
        if finished_at is not None:
            ended.append((finished_at, key))
        if state == StepState.COMPLETED and finished_at is not None:
            found.append(
                WorkflowEvent(
                    order=position + 1,
                    type="workflow.step_completed",
                    time=finished_at,
                    job_id=key,
                    data=data,
                )
            )
    found.sort(key=lambda event: (event.time, event.order))
    if workflow.finished_at is not None:
        last = max(ended)[1] if ended else last
        duration = milliseconds_between(workflow.created_at, workflow.finished_at)
        found.append(
            WorkflowEvent(
                order=steps[-1][1] + 2,
                type="workflow.completed",
                time=max(workflow.finished_at, found[-1].time),
                job_id=last,
                data={"duration_ms": duration, "status": workflow.state},
            )
        )
    return found
