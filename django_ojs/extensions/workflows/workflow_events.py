"""The data of workflow events (ojs-events §4.4, ojs-workflows appendix B)."""

from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from django_ojs.extensions.events.job_events import error_of
from django_ojs.spec.published import EventType, NewEvent
from django_ojs.spec.times import format_timestamp, milliseconds_between


class WorkflowLike(Protocol):
    """The part of a workflow that events are made from."""

    @property
    def pk(self) -> UUID: ...
    @property
    def type(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def state(self) -> str: ...
    @property
    def queues(self) -> list[str]: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...
    @property
    def steps_left(self) -> int: ...
    @property
    def jobs_total(self) -> int: ...
    @property
    def jobs_completed(self) -> int: ...
    @property
    def jobs_failed(self) -> int: ...


class StepLike(Protocol):
    """The part of a step that events are made from."""

    @property
    def pk(self) -> UUID: ...
    @property
    def position(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def type(self) -> str | None: ...
    @property
    def state(self) -> str: ...
    @property
    def callback(self) -> str | None: ...
    @property
    def error(self) -> Any: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...


#: The types of the events that `step_ended` returns.
STEP_ENDED: Final = (
    EventType.WORKFLOW_STEP_COMPLETED,
    EventType.WORKFLOW_STEP_FAILED,
    EventType.WORKFLOW_JOB_COMPLETED,
    EventType.WORKFLOW_JOB_FAILED,
)
_ENDED: Final = {
    "completed": EventType.WORKFLOW_COMPLETED,
    "failed": EventType.WORKFLOW_FAILED,
    "cancelled": EventType.WORKFLOW_CANCELLED,
}


def created(workflow: WorkflowLike) -> NewEvent:
    """A workflow was created."""
    return _event(EventType.WORKFLOW_CREATED, workflow, {"job_count": workflow.jobs_total})


def started(workflow: WorkflowLike) -> NewEvent:
    """The workflow started. This is recorded when the first of its jobs has ended."""
    data: dict[str, Any] = {"total_steps": workflow.jobs_total}
    if workflow.started_at is not None:
        data["started_at"] = format_timestamp(workflow.started_at)
    return _event(EventType.WORKFLOW_STARTED, workflow, data)


def step_ended(workflow: WorkflowLike, step: StepLike) -> NewEvent:
    """The job of a step ended. In a group or a batch, the event is about the job."""
    succeeded = step.state == "completed"
    if workflow.type in ("chain", "graph"):
        type = EventType.WORKFLOW_STEP_COMPLETED if succeeded else EventType.WORKFLOW_STEP_FAILED
    else:
        type = EventType.WORKFLOW_JOB_COMPLETED if succeeded else EventType.WORKFLOW_JOB_FAILED
    left = workflow.steps_left
    data = {**_step(step), "remaining_steps": left, "steps_remaining": left, **_duration(step)}
    if step.error:
        data["error"] = error_of(step.error)
    return _event(type, workflow, data)


def callback_fired(workflow: WorkflowLike, step: StepLike) -> NewEvent:
    """A callback of a batch was enqueued."""
    return _event(
        EventType.WORKFLOW_CALLBACK_FIRED, workflow, {**_step(step), "callback": step.callback}
    )


def type_of_end(state: str) -> EventType:
    """Return the type of the event of a workflow that ended in this state."""
    return _ENDED[state]


def ended(workflow: WorkflowLike, failed: StepLike | None = None) -> NewEvent:
    """A workflow was completed, failed or was cancelled. `failed` is the step that failed it."""
    data = {
        "job_count": workflow.jobs_total,
        "total_steps": workflow.jobs_total,
        "completed_count": workflow.jobs_completed,
        "failed_count": workflow.jobs_failed,
        **_duration(workflow),
    }
    if failed is not None:
        data |= {
            "failed_step_id": failed.key,
            "failed_step_type": failed.type,
            "error": error_of(failed.error or {"type": failed.state}),
        }
    return _event(type_of_end(str(workflow.state)), workflow, data)


def _duration(of: WorkflowLike | StepLike) -> dict[str, Any]:
    if of.started_at is None or of.finished_at is None:
        return {}
    return {"duration_ms": milliseconds_between(of.started_at, of.finished_at)}


def _step(step: StepLike) -> dict[str, Any]:
    return {
        "step_index": step.position,
        "step_key": step.key,
        "step_id": step.key,
        "step_type": step.type,
        "job_id": str(step.pk),
    }


def _event(type: EventType, workflow: WorkflowLike, data: dict[str, Any]) -> NewEvent:
    which = {
        "workflow_id": str(workflow.pk),
        "workflow_type": workflow.type,
        "workflow_name": workflow.name or "",
    }
    # The queue of an event decides which API keys see it. A workflow in several queues has none.
    queue = workflow.queues[0] if len(workflow.queues) == 1 else ""
    return NewEvent(type=type, subject=str(workflow.pk), queue=queue, data={**which, **data})
