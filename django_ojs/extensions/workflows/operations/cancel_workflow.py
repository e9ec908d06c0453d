"""Cancel workflows (ojs-workflows §11.3)."""

from uuid import UUID

from django.db.models.functions import Now

from django_ojs import hooks
from django_ojs.extensions.workflows import workflow_events
from django_ojs.extensions.workflows.models import StepState, Workflow, WorkflowState, WorkflowStep
from django_ojs.extensions.workflows.operations.advance import count_ended
from django_ojs.extensions.workflows.operations.queries import lock
from django_ojs.hooks import publish_all
from django_ojs.models import Job
from django_ojs.operations.access import operator
from django_ojs.operations.cancel_locked import stop
from django_ojs.spec.errors import Conflict
from django_ojs.spec.states import State, Trigger, sources
from django_ojs.storage import database, transitions
from django_ojs.storage.dialects.expressions import OneOf

_UNENDED = (StepState.WAITING, StepState.READY, StepState.ENQUEUED)
#: Jobs whose rows are locked by one statement.
_AT_ONCE = 1_000


def cancel(workflow_id: UUID, *, completes: UUID | None = None) -> Workflow:
    """Cancel a workflow, and its jobs that have not ended, active ones included.

    Raises WorkflowNotFound, and Conflict when it has ended, or when it contains the job that the
    caller's transaction `completes`.
    """
    stand_in = hooks.registry.stand_ins.get("workflows.cancel")
    kept: Workflow | None = stand_in(workflow_id) if stand_in else None
    if kept is not None:
        return kept
    workflow = _cancel(workflow_id, completes)
    if workflow.state != WorkflowState.CANCELLED:
        # Its last jobs had ended. The error is raised after the transaction, so that their counts
        # are not rolled back.
        check_running(workflow)
    return workflow


def check_running(workflow: Workflow) -> None:
    """Raise Conflict when a workflow has ended."""
    if workflow.state != WorkflowState.RUNNING:
        raise Conflict(
            f"The workflow has ended: it is {workflow.state}.",
            details={
                "workflow_id": str(workflow.pk),
                "current_state": workflow.state,
                "expected_state": WorkflowState.RUNNING.value,
            },
        )


@database.write_transaction
def _cancel(workflow_id: UUID, completes: UUID | None) -> Workflow:
    """Cancel a workflow, unless it ends when the jobs that have ended are counted."""
    workflow = lock(workflow_id)
    check_running(workflow)
    steps = WorkflowStep.primary.filter(workflow_id=workflow_id, state__in=_UNENDED)
    enqueued = sorted(
        steps.filter(state=StepState.ENQUEUED).values_list("pk", flat=True), key=lambda key: key.hex
    )
    cancelled: set[UUID] = set()
    for start in range(0, len(enqueued), _AT_ONCE):
        some = enqueued[start : start + _AT_ONCE]
        jobs = Job.primary.filter(
            OneOf("pk", some), state__in=sources(Trigger.CANCEL, State.CANCELLED)
        )
        found = transitions.lock_all(jobs)
        stop(found)
        cancelled.update(job.pk for job in found)
    if completes in cancelled:
        # The job's ACK would fail, and undo all that its handler has done, at each attempt.
        raise Conflict(
            "A job of the workflow cancels it, and its handler is atomic: the job could not "
            "complete after that.",
            details={"workflow_id": str(workflow_id), "job_id": str(completes)},
            hint="Cancel the workflow with transaction.on_commit(...).",
        )
    # No job of the workflow can end from here on.
    count_ended(workflow, cancelled)
    if workflow.state != WorkflowState.RUNNING:
        return workflow
    steps.update(state=StepState.CANCELLED, finished_at=Now())
    Workflow.primary.filter(pk=workflow_id).update(
        state=WorkflowState.CANCELLED, finished_at=Now(), steps_left=0
    )
    workflow.refresh_from_db(using=database.alias())
    publish_all([workflow_events.ended(workflow)])
    operator.acted(
        "workflow.cancelled",
        workflow_id,
        changes={"state": (WorkflowState.RUNNING, WorkflowState.CANCELLED)},
        jobs=len(cancelled),
    )
    return workflow
