"""Jobs that a step starts and waits for, as a group of `extensions.workflows`.

Only steps of this kind need that extension, so it is imported inside of functions.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from django_ojs.enqueue_options import Request
from django_ojs.extension import Change
from django_ojs.extensions.steps import sending, store
from django_ojs.extensions.steps.models import Step, StepKind, StepStatus
from django_ojs.hooks import registry
from django_ojs.models import Job
from django_ojs.not_installed import check_module
from django_ojs.spec.errors import Conflict, DependencyFailed, NotFound, RowLocked
from django_ojs.spec.published import EventType, NewEvent
from django_ojs.spec.states import State
from django_ojs.storage import database, transitions
from django_ojs.storage.claimed_job import Claimed
from django_ojs.storage.dialects.expressions import OneOf

#: The `signal` of a step that waits for the end of a workflow; its `key` is the workflow's id.
WORKFLOW: Final = "workflow"

#: How the names of these workflows begin.
_PREFIX: Final = "steps.gather "

#: Seconds for which `cancel` tries again rows that another session has locked, all together.
ROW_TIMEOUT: Final = 0.2
#: Waiting steps that one call of `LeftAsleep.wake` reads.
WALK: Final = database.BATCH

ENDS: Final = frozenset(
    {EventType.WORKFLOW_COMPLETED, EventType.WORKFLOW_FAILED, EventType.WORKFLOW_CANCELLED}
)


@database.write_transaction
def begin(job: Claimed, step: Step, requests: Sequence[Request]) -> None:
    """Start the jobs of a step, and store the step, which waits for them. Raises ClaimLost."""
    check_module("django_ojs.extensions.workflows.api", "group")
    from django_ojs.extensions.workflows import operations as workflows
    from django_ojs.extensions.workflows.api import group

    store.lock(job)
    graph = group(*requests, name=f"{_PREFIX}{step.name}").graph()
    try:
        workflow = workflows.create(graph)
    except Conflict as error:
        # For the run, a Conflict means that it has lost its job.
        raise DependencyFailed(error.message) from error
    step.signal, step.key = WORKFLOW, str(workflow.pk)
    store.insert(job, step)


def is_over(step: Step) -> bool:
    """Whether all jobs of a step have ended."""
    from django_ojs.extensions.workflows.models import Workflow, WorkflowState

    running = Workflow.primary.filter(pk=_id(step), state=WorkflowState.RUNNING)
    return not running.exists()


def results(step: Step) -> tuple[list[Any], list[str]]:
    """Return the results of the jobs of a step, in order, and a text for each that failed."""
    from django_ojs.extensions.workflows.models import WorkflowStep

    steps = WorkflowStep.primary.filter(workflow_id=_id(step), type__isnull=False)
    keys = list(steps.order_by("position").values_list("pk", flat=True))
    jobs = {job.pk: job for job in Job.primary.filter(OneOf("pk", keys)).defer("args", "options")}
    copies = _copies([key for key in keys if key not in jobs])
    found, failed = [], []
    for key in keys:
        job = jobs.get(key)
        found.append(copies.get(key) if job is None else job.result)
        if job is None and key not in copies:
            failed.append(f"{key} was deleted")
        elif job is not None and job.state != "completed":
            failed.append(f"{job.type} {key}: {job.state}")
    if not keys:
        failed.append(f"the workflow {step.key} was deleted")
    return found, failed


def _copies(keys: Collection[UUID]) -> dict[UUID, Any]:
    """Return the results of completed jobs that were pruned; their workflow keeps these longer."""
    from django_ojs.extensions.workflows.models import StepState, WorkflowStep

    steps = WorkflowStep.primary.filter(OneOf("pk", keys), state=StepState.COMPLETED)
    rows = steps.values_list("pk", "result", "result_size") if keys else ()
    # A result that is too large is not copied.
    return {key: result for key, result, size in rows if result is not None or size is None}


def ended(events: Sequence[NewEvent]) -> None:
    """Wake the jobs whose steps wait for these workflows."""
    for event in events:
        if str(event.data["workflow_name"]).startswith(_PREFIX):
            # `store.suspend` takes this lock too: a job that is being suspended finds the end of
            # its workflow, or is found here.
            store.lock_signal(WORKFLOW, event.subject)
            found = Step.primary.filter(
                signal=WORKFLOW, key=event.subject, outcome=StepStatus.WAITING
            )
            sending.wake(set(found.values_list("job_id", flat=True)))


class LeftAsleep:
    """Wakes the jobs whose workflows ended in a process without this extension, which woke none."""

    def __init__(self) -> None:
        self._after = ""

    def wake(self) -> int:
        """Continue the walk over waiting steps, or begin a new one. Return how many were read."""
        if not registry.has("workflows"):
            return 0
        from django_ojs.extensions.workflows.models import Workflow, WorkflowState

        steps = _waiting().filter(signal=WORKFLOW, key__gt=self._after)
        found = list(steps.order_by("key").values_list("key", "job_id")[:WALK])
        # It is set first: the walk goes on even if jobs cannot be woken now.
        self._after = str(found[-1][0]) if len(found) == WALK else ""
        keys = [UUID(key) for key, _ in found]
        running = Workflow.primary.filter(OneOf("pk", keys), state=WorkflowState.RUNNING)
        going_on = set(running.values_list("pk", flat=True))
        left = {job: str(key) for key, job in found if UUID(key) not in going_on}
        if left and _asleep(left).exists():
            database.in_write_transaction(partial(_wake_left, left))
        return len(found)


def _asleep(keys: Collection[UUID]) -> QuerySet[Job]:
    return Job.primary.filter(OneOf("pk", list(keys)), state=State.SCHEDULED)


def _wake_left(left: Mapping[UUID, str]) -> None:
    """Wake the jobs that still wait for these workflows, except those that are locked."""
    # Another process may have woken a job, which now sleeps in a later step. That is read after the
    # lock, and so it stays as it is.
    held = transitions.lock_free(_asleep(left))
    still = waiting(held).filter(signal=WORKFLOW).values_list("job_id", "key")
    sending.wake({job for job, key in still if left[job] == key})


def parents_ended(change: Change) -> None:
    """Cancel the jobs that a step waits for when its own job was cancelled or has expired."""
    cancel(waiting(change.before))


def waiting(keys: Collection[UUID]) -> QuerySet[Step]:
    """Return the steps of these jobs that wait for jobs."""
    return _waiting().filter(OneOf("job_id", keys))


def _waiting() -> QuerySet[Step]:
    return Step.primary.filter(kind=StepKind.GATHER, outcome=StepStatus.WAITING)


def cancel(steps: Iterable[Step]) -> None:
    """Cancel the jobs for which these steps wait."""
    if not registry.has("workflows"):
        return  # The extension was removed, so there is no workflow to cancel.
    from django_ojs.extensions.workflows import operations as workflows

    until = time.monotonic() + ROW_TIMEOUT
    for step in steps:
        left = max(until - time.monotonic(), 0.0)
        limit = database.passing_by(left) if database.passes_by() else nullcontext()
        # The jobs may have ended. If a row stays locked, these jobs go on, and not all others.
        with suppress(Conflict, NotFound, RowLocked), limit:
            workflows.cancel(_id(step))


def _id(step: Step) -> UUID:
    return UUID(str(step.key))
