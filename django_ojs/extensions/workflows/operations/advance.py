"""Advance workflows: take the jobs that have ended from the journal, and start what may start.

Any process may do this at any time. The row of the workflow is locked meanwhile, and the ends of
its jobs, the jobs that they start and the state of the workflow are stored in one transaction: a
process that dies has done nothing, and no two do the same. Several workflows share a transaction,
because most of its statements cost the same for one step as for many.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final
from uuid import UUID

from django.db import Error, InterfaceError, OperationalError

from django_ojs.extensions.workflows import storage as workflows
from django_ojs.extensions.workflows import workflow_events
from django_ojs.extensions.workflows.models import (
    EndedWorkflowJob,
    StepState,
    Workflow,
    WorkflowState,
    WorkflowStep,
)
from django_ojs.extensions.workflows.operations import starting
from django_ojs.extensions.workflows.spec import Condition, StepOutcome, join_outcome
from django_ojs.extensions.workflows.storage import EndedStep, Place
from django_ojs.hooks import is_published, publish_all
from django_ojs.spec.errors import RowLocked
from django_ojs.spec.published import NewEvent
from django_ojs.storage import database, in_memory_state
from django_ojs.storage.dialects.expressions import OneOf
from django_ojs.storage.in_memory_state import LastQuery

#: The name of an advance in traces (ojs-distributed-tracing §4.2).
TASK: Final = "ojs.workflow.advance"

#: Seconds between two queries of a process; less than TICK, so that no round of its maintenance
#: is left out.
INTERVAL: Final = 0.4
#: Ended jobs that are taken from the journal in one transaction.
AT_ONCE: Final = 1_000
#: Workflows that one step of the maintenance advances.
WORKFLOWS_AT_ONCE: Final = 100
#: The most workflows that one transaction advances, and the most steps if there are several.
TOGETHER: Final = 50
STEPS_TOGETHER: Final = 1_000

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

logger = logging.getLogger("django_ojs.extensions.workflows.api")


class _TooManySteps(Exception):
    """Several workflows have too many steps to be advanced in one transaction."""


def advance_all(workflow_ids: Iterable[UUID]) -> None:
    """Advance workflows. An error is logged: the maintenance tries again.

    A workflow that fails, with a statement timeout for example, does not keep the others from
    advancing.
    """
    wanted = list(workflow_ids)
    for start in range(0, len(wanted), TOGETHER):
        some = wanted[start : start + TOGETHER]
        if not (_try(some) if len(some) > 1 else _try_each(some)):
            return


def _try(workflow_ids: Sequence[UUID]) -> bool:
    """Advance workflows together, or one by one if that fails. Return False as `_try_each` does."""
    try:
        advance(*workflow_ids)
    except _TooManySteps:
        pass
    except Exception as error:
        if _is_database_unusable(error):
            return False
    else:
        return True
    return _try_each(workflow_ids)


def _try_each(workflow_ids: Sequence[UUID]) -> bool:
    """Advance each workflow. Stop, and return False, once the database cannot be used."""
    for workflow_id in workflow_ids:
        try:
            advance(workflow_id)
        except RowLocked:
            continue  # An extension waits for another session, which soon ends its transaction.
        except Exception as error:
            if _is_database_unusable(error):
                return False
            logger.error(
                "The workflow %s was not advanced; it will be tried again.",
                workflow_id,
                exc_info=database.without_values(error),
            )
    return True


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
    # The workflow itself may have broken the connection: the others get a new one.
    link.close()
    try:
        link.ensure_connection()
    except Error:
        return True
    return False


last_query: Final = in_memory_state.register(LastQuery())


def advance_if_due() -> int:
    """Advance the workflows in which a job has ended, however it ended. Return how many.

    Each FETCH over HTTP calls this as well, which may be very often, so the process queries at
    most once in INTERVAL.
    """
    return advance_due() if last_query.repeat(INTERVAL) else 0


def advance_due(limit: int = WORKFLOWS_AT_ONCE) -> int:
    """Advance the workflows in which a job has ended. Return how many there were."""
    due = workflows.due.next(limit)
    advance_all(due)
    return len(due)


def advance(*workflow_ids: UUID) -> None:
    """Advance workflows in one transaction, except those that another process is advancing.

    That process queries again after it has released a workflow, so it finds what was committed
    until then. If advancing one workflow raises, none is advanced.
    """
    left: Sequence[UUID] = workflow_ids
    while left and (advanced := _advance(left)):
        left = workflows.with_ended_jobs(advanced)


@database.write_transaction
def _advance(workflow_ids: Collection[UUID]) -> list[UUID]:
    """Advance workflows in one transaction. Return those that no other process has locked."""
    found = Workflow.primary.select_for_update(skip_locked=True, no_key=True)
    locked = list(found.filter(OneOf("pk", workflow_ids)).order_by("pk"))
    keys = [workflow.pk for workflow in locked]
    if len(keys) < len(workflow_ids):
        _forget_pruned(set(workflow_ids).difference(keys))
    if not keys:
        return []
    taken = workflows.take_ended_jobs(keys, AT_ONCE)
    running = [each for each in locked if each.state == WorkflowState.RUNNING]
    ended = {job: state for each in running for job, state in taken.get(each.pk, {}).items()}
    if running:
        _Advance(running).run(workflows.end_steps(ended) if ended else [])
    return keys


def _forget_pruned(workflow_ids: Collection[UUID]) -> None:
    """Delete the journal's rows about pruned workflows, whose jobs may end after the pruning."""
    kept = Workflow.primary.filter(OneOf("pk", workflow_ids)).values_list("pk", flat=True)
    if pruned := set(workflow_ids).difference(kept):
        database.delete_free(EndedWorkflowJob.primary.filter(OneOf("workflow_id", pruned)))


def count_ended(workflow: Workflow, cancelled: Collection[UUID]) -> None:
    """Count the jobs that have ended, except those that the caller has cancelled; start none.

    The caller has locked the workflow, and cancels it unless this call ends it.
    """
    while taken := workflows.take_ended_jobs([workflow.pk], AT_ONCE):
        states = taken[workflow.pk]
        ended = {key: state for key, state in states.items() if key not in cancelled}
        if ended:
            _Advance([workflow], starts=False).run(workflows.end_steps(ended))


class _Advance:
    """One transaction that advances workflows, which it has locked."""

    def __init__(self, locked: Iterable[Workflow], *, starts: bool = True) -> None:
        self._workflows = {workflow.pk: workflow for workflow in locked}
        self._starts = starts
        self._changed: dict[UUID, Workflow] = {}
        self._events: defaultdict[UUID, list[NewEvent]] = defaultdict(list)
        self._has_step_events = is_published(*workflow_events.STEP_ENDED)

    def run(self, ended: Sequence[EndedStep]) -> None:
        """Count ended steps, and start or end the steps that follow. Raises _TooManySteps."""
        for step in ended:
            self._note_ended(step, StepState(step.state))
        starting = self._ready() if self._starts else []
        pending: list[EndedStep | WorkflowStep] = [*ended]
        while pending or starting:
            while pending:
                over, free = self._follow(pending)
                pending = [*over]
                starting += free
            pending, starting = [*self._start(starting)], []
        if self._changed:
            self._save()
        publish_all([event for events in self._events.values() for event in events])

    def _ready(self) -> list[WorkflowStep]:
        """Return the steps that could not be enqueued before, and may be tried again now."""
        ready = workflows.ready_steps().filter(OneOf("workflow_id", self._workflows))
        ready = ready.order_by("workflow_id", "position")
        if len(self._workflows) == 1:
            return list(ready)
        found = list(ready[: STEPS_TOGETHER + 1])
        self._check_steps(len(found))
        return found

    def _check_steps(self, number: int) -> None:
        if number > STEPS_TOGETHER and len(self._workflows) > 1:
            raise _TooManySteps

    def _follow(
        self, ended: Sequence[EndedStep | WorkflowStep]
    ) -> tuple[list[WorkflowStep], list[WorkflowStep]]:
        """Count the ends of steps for their dependents.

        Return the dependents that have ended as a result, and those whose jobs start now.
        """
        counts: dict[Place, Counter[StepOutcome]] = {}
        for step in ended:
            outcome = _OUTCOMES[StepState(step.state)]
            for position in step.dependents:
                place = (step.workflow_id, position)
                counts.setdefault(place, Counter())[outcome] += 1
        if not counts:
            return [], []
        self._check_steps(len(counts))
        dependents = workflows.at_places(counts)
        workflows.note_dependencies(dependents, counts)
        starting: list[WorkflowStep] = []
        by_state: dict[StepState, list[WorkflowStep]] = {}
        for step in dependents:
            if step.outstanding:
                continue
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
        return over, starting

    def _start(self, steps: Sequence[WorkflowStep]) -> list[WorkflowStep]:
        """Start steps. Return those that have failed because their jobs were rejected."""
        if not steps or not self._starts:
            return []
        started = starting.start(steps)
        workflows.set_state(started.enqueued, StepState.ENQUEUED)
        if recovered := [step.pk for step in started.enqueued if step.start_failures]:
            WorkflowStep.primary.filter(OneOf("pk", recovered)).update(error=None)
        workflows.set_state(
            [step for step in started.ready if step.state != StepState.READY], StepState.READY
        )
        for step, error in started.delayed:
            workflows.try_again(step, error, starting.delay_after(step.start_failures + 1))
        for step in started.enqueued:
            if step.callback is not None:
                workflow = self._workflows[step.workflow_id]
                self._events[workflow.pk].append(workflow_events.callback_fired(workflow, step))
        rejected = [step for step, _ in started.rejected]
        workflows.set_state(rejected, StepState.FAILED)
        for step, error in started.rejected:
            WorkflowStep.primary.filter(pk=step.pk).update(error=error)
            step.error = error
            self._note_ended(step, StepState.FAILED)
        return rejected

    def _note_ended(self, step: EndedStep | WorkflowStep, state: StepState) -> None:
        workflow = self._workflows[step.workflow_id]
        self._changed[workflow.pk] = workflow
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
            self._events[workflow.pk].append(workflow_events.step_ended(workflow, step))

    def _save(self) -> None:
        """Store the workflows that have changed, with the events of their start and their end."""
        new = {key for key, workflow in self._changed.items() if workflow.started_at is None}
        for workflow in self._changed.values():
            if not workflow.steps_left:
                has_failed = workflow.has_failed
                workflow.state = WorkflowState.FAILED if has_failed else WorkflowState.COMPLETED
        workflows.save(self._changed.values())
        for key, workflow in self._changed.items():
            if key in new and workflow.started_at is not None:
                self._events[key].insert(0, workflow_events.started(workflow))
            if workflow.state == WorkflowState.RUNNING:
                continue
            if is_published(workflow_events.type_of_end(workflow.state)):
                self._events[key].append(workflow_events.ended(workflow, _first_failed(workflow)))


def _first_failed(workflow: Workflow) -> WorkflowStep | None:
    """Return the first step whose failure made a workflow fail."""
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
    """Return how a step ends whose dependencies have all ended, or None if its job starts now."""
    condition = Condition(step.condition)
    counts = {"succeeded": step.succeeded, "failed": step.failed, "skipped": step.skipped}
    if step.is_join:
        return join_outcome(condition, **counts)
    return None if condition.is_met(**counts) else StepOutcome.SKIPPED
