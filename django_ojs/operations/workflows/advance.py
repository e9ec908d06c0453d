"""Advance workflows: take the jobs that have ended from the journal, and start what may start.

Any process may do it at any time. The row of the workflow is locked meanwhile, and the ends of its
jobs, the jobs that they start and the state of the workflow are stored in one transaction: a
process that dies has done nothing, and none does it twice.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final
from uuid import UUID

from django.db import Error, InterfaceError, OperationalError
from django.db.models import Min
from django.db.models.functions import Now

from django_ojs.models import EndedWorkflowJob, Workflow, WorkflowStep
from django_ojs.models.workflow import StepState, WorkflowState
from django_ojs.operations.events import publish
from django_ojs.operations.workflows import starting
from django_ojs.spec import workflow_events
from django_ojs.spec.events import NewEvent
from django_ojs.spec.workflow import Condition, StepOutcome, join_outcome
from django_ojs.storage import database, workflows
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.workflows import EndedStep

#: Ended jobs that are taken from the journal in one transaction.
AT_ONCE: Final = 1_000
#: Workflows that one step of the maintenance advances.
WORKFLOWS_AT_ONCE: Final = 100

_OUTCOMES: Final = {
    StepState.COMPLETED: StepOutcome.SUCCEEDED,
    StepState.FAILED: StepOutcome.FAILED,
    StepState.CANCELLED: StepOutcome.FAILED,
    StepState.SKIPPED: StepOutcome.SKIPPED,
}
_STATES: Final = {
    StepOutcome.SUCCEEDED: StepState.COMPLETED,
    StepOutcome.FAILED: StepState.FAILED,
    StepOutcome.SKIPPED: StepState.SKIPPED,
}

logger = logging.getLogger("django_ojs.workflows")


def advance_after_commit(workflow_id: UUID | None) -> None:
    """Advance the workflow of a job that has ended, if it has one, once the transaction commits.

    If that fails, the maintenance does it.
    """
    if workflow_id is not None:
        database.after_commit(lambda: advance_all([workflow_id]))


def advance_all(workflow_ids: Iterable[UUID]) -> None:
    """Advance workflows. An error is logged: the maintenance tries again.

    One that fails, with a statement timeout for example, does not keep the others from it.
    """
    for workflow_id in workflow_ids:
        try:
            advance(workflow_id)
        except Exception as error:
            if _is_database_unusable(error):
                return
            logger.exception(
                "The workflow %s was not advanced; it will be tried again.", workflow_id
            )


def _is_database_unusable(error: Exception) -> bool:
    """Whether the database cannot be used now, so that each other workflow would fail as well."""
    if not isinstance(error, (InterfaceError, OperationalError)):
        database.leave_if_read_only(error)
        return database.is_unavailable(error)
    link = database.connection()
    dialect = database.dialect_of(link)
    is_locked = isinstance(error, OperationalError) and dialect.is_contention_error(error)
    if dialect.has_one_writer and is_locked:
        return True
    if link.is_usable():
        return False
    if link.in_atomic_block:
        return True
    # The workflow itself may have cost the connection: the others get a new one.
    link.close()
    try:
        link.ensure_connection()
    except Error:
        return True
    return False


def advance_due(limit: int = WORKFLOWS_AT_ONCE) -> int:
    """Advance the workflows of which a job has ended. Return how many there were."""
    due = workflows.due.next(limit)
    advance_all(due)
    return len(due)


def advance(workflow_id: UUID) -> None:
    """Advance one workflow, unless another process is doing it.

    That process finds what is committed before it has released the workflow, because it queries
    again then.
    """
    while _advance(workflow_id) and workflows.has_ended_jobs(workflow_id):
        pass


@database.write_transaction
def _advance(workflow_id: UUID) -> bool:
    """Advance a workflow by one transaction. Return False if another process has locked it."""
    found = Workflow.primary.select_for_update(skip_locked=True, no_key=True)
    workflow = found.filter(pk=workflow_id).first()
    if workflow is None:
        if Workflow.primary.filter(pk=workflow_id).exists():
            return False
        # It was pruned: its jobs end alone.
        EndedWorkflowJob.primary.filter(workflow_id=workflow_id).delete()
        return True
    ended = workflows.take_ended_jobs(workflow_id, AT_ONCE)
    if workflow.state == WorkflowState.RUNNING:
        _Advance(workflow).run(workflows.end_steps(ended) if ended else [])
    return True


def count_ended(workflow: Workflow, cancelled: Collection[UUID]) -> None:
    """Count the jobs that have ended, but for those that the caller has cancelled; start none.

    The caller has locked the workflow, and cancels it unless it has ended by that.
    """
    while taken := workflows.take_ended_jobs(workflow.pk, AT_ONCE):
        ended = {key: state for key, state in taken.items() if key not in cancelled}
        if ended:
            _Advance(workflow, starts=False).run(workflows.end_steps(ended))


class _Advance:
    """One transaction that advances one workflow."""

    def __init__(self, workflow: Workflow, *, starts: bool = True) -> None:
        self._workflow = workflow
        self._starts = starts
        self._events: list[NewEvent] = []
        self._has_changed = False
        self._has_step_events = publish.is_recorded(*workflow_events.STEP_ENDED)

    def run(self, ended: Sequence[EndedStep]) -> None:
        for step in ended:
            self._note_ended(step, StepState(step.state))
        ready = workflows.ready_steps().filter(workflow_id=self._workflow.pk)
        more = self._start(list(ready.order_by("position")))
        pending: list[EndedStep | WorkflowStep] = [*ended, *more]
        while pending:
            pending = [*self._follow(pending)]
        if self._has_changed:
            self._store()
        publish.record(self._events)

    def _follow(self, ended: Sequence[EndedStep | WorkflowStep]) -> list[WorkflowStep]:
        """Count ended steps on their dependents; start or end those that waited for nothing else.

        Return the steps that have ended by that.
        """
        counts: dict[int, Counter[StepOutcome]] = {}
        for step in ended:
            outcome = _OUTCOMES[StepState(step.state)]
            for position in step.dependents:
                counts.setdefault(position, Counter())[outcome] += 1
        if not counts:
            return []
        dependents = workflows.at_positions(self._workflow.pk, counts)
        workflows.note_dependencies(dependents, counts)
        free = [step for step in dependents if not step.outstanding]
        starting: list[WorkflowStep] = []
        by_state: dict[StepState, list[WorkflowStep]] = {}
        for step in free:
            end = _evaluate(step)
            if end is None:
                starting.append(step)
            else:
                by_state.setdefault(_STATES[end], []).append(step)
        over: list[WorkflowStep] = []
        for state, steps in by_state.items():
            workflows.set_state(steps, state)
            for step in steps:
                self._note_ended(step, state)
            over += steps
        return over + self._start(starting)

    def _start(self, steps: Sequence[WorkflowStep]) -> list[WorkflowStep]:
        """Start steps. Return those that have failed because their jobs were rejected."""
        if not steps or not self._starts:
            return []
        started = starting.start(self._workflow.pk, steps)
        workflows.set_state(started.enqueued, StepState.ENQUEUED)
        if recovered := [step.pk for step in started.enqueued if step.start_failures]:
            WorkflowStep.primary.filter(OneOf("pk", recovered)).update(error=None)
        workflows.set_state(
            [step for step in started.ready if step.state != StepState.READY], StepState.READY
        )
        for step, error in started.delayed:
            workflows.try_again(step, error, starting.delay_after(step.start_failures + 1))
        self._events += [
            workflow_events.callback_fired(self._workflow, step)
            for step in started.enqueued
            if step.callback is not None
        ]
        rejected = [step for step, _ in started.rejected]
        workflows.set_state(rejected, StepState.FAILED)
        for step, error in started.rejected:
            WorkflowStep.primary.filter(pk=step.pk).update(error=error)
            step.error = error
            self._note_ended(step, StepState.FAILED)
        return rejected

    def _note_ended(self, step: EndedStep | WorkflowStep, state: StepState) -> None:
        workflow = self._workflow
        self._has_changed = True
        workflow.steps_left -= 1
        outcome = _OUTCOMES[state]
        if outcome is StepOutcome.FAILED and step.fails_workflow:
            workflow.has_failed = True
        if step.type is None or outcome is StepOutcome.SKIPPED:
            return
        if step.callback is None:
            if outcome is StepOutcome.SUCCEEDED:
                workflow.jobs_completed += 1
            else:
                workflow.jobs_failed += 1
        if self._has_step_events:
            self._events.append(workflow_events.step_ended(workflow, step))

    def _store(self) -> None:
        workflow = self._workflow
        values = {
            name: getattr(workflow, name)
            for name in ("steps_left", "has_failed", "jobs_completed", "jobs_failed")
        }
        rows = Workflow.primary.filter(pk=workflow.pk)
        if workflow.started_at is None:
            steps = WorkflowStep.primary.filter(workflow_id=workflow.pk)
            workflow.started_at = steps.aggregate(first=Min("started_at"))["first"]
            values["started_at"] = workflow.started_at
            if workflow.started_at is not None:
                self._events.insert(0, workflow_events.started(workflow))
        if workflow.steps_left:
            rows.update(**values)
            return
        state = WorkflowState.FAILED if workflow.has_failed else WorkflowState.COMPLETED
        workflow.state = state
        rows.update(**values, state=state, finished_at=Now())
        if publish.is_recorded(workflow_events.type_of_end(state)):
            workflow.refresh_from_db(using=database.alias(), fields=["finished_at"])
            self._events.append(workflow_events.ended(workflow, _first_failed(workflow)))


def _first_failed(workflow: Workflow) -> WorkflowStep | None:
    """Return the step with which a workflow has failed."""
    if not workflow.has_failed:
        return None
    failed = WorkflowStep.primary.filter(
        workflow_id=workflow.pk,
        state__in=(StepState.FAILED, StepState.CANCELLED),
        type__isnull=False,
        fails_workflow=True,
    )
    return failed.order_by("finished_at", "position").first()


def _evaluate(step: WorkflowStep) -> StepOutcome | None:
    """Return how a step ends whose dependencies have all ended; None: its job starts now."""
    condition = Condition(step.condition)
    counts = {"succeeded": step.succeeded, "failed": step.failed, "skipped": step.skipped}
    if step.is_join:
        return join_outcome(condition, **counts)
    return None if condition.is_met(**counts) else StepOutcome.SKIPPED
