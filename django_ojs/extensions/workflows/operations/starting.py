"""Start steps of a workflow: enqueue their jobs, with the results of their parents."""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import InterfaceError, OperationalError

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.workflows import storage as workflows
from django_ojs.extensions.workflows.models import MARK, StepState, WorkflowStep
from django_ojs.models import Job
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.enqueue.unique import UniqueKeyLocked
from django_ojs.operations.push import PushOptions, push_batch
from django_ojs.spec.envelope import Envelope, parse
from django_ojs.spec.errors import DependencyFailed, OJSError, QueueFull, QueuePaused
from django_ojs.spec.json import JSON, dumps
from django_ojs.spec.states import State
from django_ojs.storage import database
from django_ojs.storage.dialects import job_row

#: A larger result is passed on by reference (ojs-workflows §7.5).
MAX_INLINE_BYTES: Final = 64 * 1024

#: How many jobs, and bytes of jobs, one statement inserts: each may have large parent results.
JOBS_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 8 * 1024 * 1024

#: How often an enqueue is tried that fails with a temporary error, and the seconds between two
#: tries, which double each time, up to the largest. All tries last about nine minutes.
MAX_TRIES: Final = 10
FIRST_DELAY: Final = 1.0
LARGEST_DELAY: Final = 300.0

#: How the first jobs of a workflow are enqueued, and how the jobs of later steps are.
FIRST: Final = PushOptions(batch=True, generated_ids=True, local=True)
_LATER: Final = replace(FIRST, tells_rejected=False, is_tried_again=True)

logger = logging.getLogger("django_ojs.extensions.workflows.api")


@dataclass(slots=True)
class Started:
    """What became of steps that were to start."""

    enqueued: list[WorkflowStep] = field(default_factory=list)
    #: Steps whose queue is full or paused, or whose unique key another transaction holds.
    ready: list[WorkflowStep] = field(default_factory=list)
    #: The steps in `ready` whose unique key another transaction holds.
    locked: set[UUID] = field(default_factory=set)
    #: Steps whose enqueue failed and is tried again, with their errors.
    delayed: list[tuple[WorkflowStep, dict[str, Any]]] = field(default_factory=list)
    #: Steps whose jobs were rejected, with their errors.
    rejected: list[tuple[WorkflowStep, dict[str, Any]]] = field(default_factory=list)


def envelope_of(
    step_id: UUID, workflow_id: UUID, job: Mapping[str, Any], parent_results: list[JSON]
) -> Envelope:
    """Return the envelope of the job of a step."""
    values = settings()
    envelope = parse(job, default_retry=values.default_retry, limits=values.limits)
    envelope.id = step_id
    envelope.workflow_id = workflow_id
    envelope.marks |= MARK
    envelope.parent_results = parent_results or None
    return envelope


def start(steps: Sequence[WorkflowStep]) -> Started:
    """Enqueue the jobs of these steps, in the transaction that has locked their workflows."""
    results = ParentResults(steps)
    started = Started()
    # If one part of a queue is at its bound, the other parts still get their jobs.
    by_place: dict[tuple[str, str], list[tuple[WorkflowStep, Envelope]]] = {}
    for step in steps:
        try:
            envelope = envelope_of(step.pk, step.workflow_id, step.job, results.of(step))
        except OJSError as error:  # The limits were lowered since the workflow was created.
            started.rejected.append((step, _error(error)))
        else:
            place = envelope.queue, hooks.bounded_part(envelope) or ""
            by_place.setdefault(place, []).append((step, envelope))
    # Queues are taken in order, so that two processes that lock bounded queues do not deadlock.
    full_queues: dict[str, QueueFull] = {}
    ours = {step.workflow_id for step in steps}
    for (queue, _), jobs in sorted(by_place.items(), key=lambda item: item[0]):
        full = full_queues.get(queue)
        if full is None:
            with hooks.with_own_jobs(lambda name: _waiting_jobs(ours, name)):
                full = _push(jobs, started)
        else:
            started.ready += [step for step, _ in jobs]
        if full is not None:
            if full.part is None:
                full_queues[queue] = full
            _record_rejection(full, jobs, started)
    return started


def _waiting_jobs(workflows: Collection[UUID], queue: str) -> set[UUID]:
    """Return the jobs of these workflows that wait in a queue; a step has the id of its job."""
    steps = WorkflowStep.primary.filter(workflow_id__in=workflows).values("pk")
    waiting = Job.primary.filter(queue=queue, state=State.AVAILABLE, pk__in=steps)
    return set(waiting.values_list("pk", flat=True))


def push(envelopes: Sequence[Envelope], options: PushOptions = FIRST) -> list[EnqueuedJob]:
    """Store the jobs of steps: all or none."""
    return push_batch(envelopes, options)


def _push(jobs: Sequence[tuple[WorkflowStep, Envelope]], started: Started) -> QueueFull | None:
    """Store jobs of one queue, as many as it has room for, even if others are rejected.

    Return the error of the queue if it is full.
    """
    try:
        with database.atomic():
            results: list[EnqueuedJob] = []
            for some in _batches([envelope for _, envelope in jobs]):
                results += push(some, _LATER)
    except (InterfaceError, OperationalError):
        raise
    except QueueFull as full:
        if len(jobs) > 1:
            middle = len(jobs) // 2
            return _push_parts([jobs[:middle], jobs[middle:]], started)
        if full.can_never_fit:
            started.rejected.append((jobs[0][0], _error(full)))
            return None
        started.ready.append(jobs[0][0])
        return full
    except QueuePaused:
        # The jobs wait until the queue accepts jobs again, as they wait for room in a full one.
        started.ready += [step for step, _ in jobs]
        return None
    except UniqueKeyLocked:
        # This job waits for the end of the transaction that holds the key, which may take long. The
        # other jobs do not wait for it.
        if len(jobs) > 1:
            return _push_parts([[job] for job in jobs], started)
        started.ready.append(jobs[0][0])
        started.locked.add(jobs[0][0].pk)
        return None
    except Exception as error:
        # A middleware may raise anything, and no job must keep the others from running.
        if len(jobs) > 1:
            return _push_parts([[job] for job in jobs], started)
        step = jobs[0][0]
        if isinstance(error, OJSError) and not error.retryable:
            started.rejected.append((step, _error(error)))
            return None
        is_last = step.start_failures + 1 >= MAX_TRIES
        logger.error(
            "The job of the step %s was not enqueued%s.",
            step.key,
            "" if is_last else "; it will be tried again",
            exc_info=database.without_values(error),
        )
        (started.rejected if is_last else started.delayed).append((step, _error(error)))
        return None
    for (step, _), result in zip(jobs, results, strict=True):
        if result.outcome is Outcome.STORED:
            started.enqueued.append(step)
        else:
            started.rejected.append((step, rejection_of(result)))
    return None


def _batches(envelopes: Sequence[Envelope]) -> Iterator[list[Envelope]]:
    """Split jobs, in order, so that one statement gets a bounded number of jobs and of bytes."""
    batch: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        added = job_row.size_of(job_row.row_of(envelope))
        if batch and (len(batch) == JOBS_AT_ONCE or size + added > BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(envelope)
        size += added
    yield batch


def _push_parts(
    parts: Sequence[Sequence[tuple[WorkflowStep, Envelope]]], started: Started
) -> QueueFull | None:
    """Store jobs of one queue part by part. Once it is full, the other parts are not tried."""
    full: QueueFull | None = None
    for part in parts:
        if full is None:
            full = _push(part, started)
        else:
            started.ready += [step for step, _ in part]
    return full


def _record_rejection(
    full: QueueFull, jobs: Sequence[tuple[WorkflowStep, Envelope]], started: Started
) -> None:
    """Count the jobs that their full queue has rejected, each only the first time."""
    ready = {step.pk for step in started.ready} - started.locked
    new = [job for step, job in jobs if step.pk in ready and step.state != StepState.READY]
    if new and not full.is_busy:
        hooks.rejected(full, new)
    else:
        # A hook `rejected` does this too: the next transaction that needs a ticket then finds one.
        queue = str(full.queue)
        database.after_commit(lambda: bounds.renew_tickets(queue))


def rejection_of(result: EnqueuedJob) -> dict[str, Any]:
    """Return the error of a step whose job was not stored, though no error was raised."""
    if result.outcome is Outcome.DUPLICATE:
        return _error(
            DependencyFailed(f"The job is a duplicate of {result.id} by its unique policy.")
        )
    return _error(DependencyFailed("An enqueue middleware dropped the job."))


def _error(error: Exception) -> dict[str, Any]:
    if isinstance(error, OJSError):
        return {"type": type(error).__name__, "code": error.code, "message": error.message}
    return {"type": type(error).__name__, "code": "backend_error", "message": "It was not stored."}


def delay_after(failures: int) -> timedelta:
    """Return how long to wait after this many failures before a step is tried again."""
    return timedelta(seconds=min(FIRST_DELAY * 2 ** (failures - 1), LARGEST_DELAY))


class ParentResults:
    """The results of the parents of some steps, read at once."""

    def __init__(self, steps: Sequence[WorkflowStep]) -> None:
        self._steps: dict[workflows.Place, WorkflowStep] = {}
        self._made: dict[tuple[UUID, tuple[int, ...]], list[JSON]] = {}
        self._room = settings().max_envelope_bytes
        missing = {place for step in steps for place in _parents(step)}
        while missing:
            found = workflows.at_places(missing)
            self._steps |= {(step.workflow_id, step.position): step for step in found}
            missing = {
                place for step in found if step.is_join for place in _parents(step)
            } - self._steps.keys()

    def of(self, step: WorkflowStep) -> list[JSON]:
        """Return the results of its parents, in order, with None for one without a result.

        A result over MAX_INLINE_BYTES becomes a reference, and so does a result for which the
        results before it leave no room in the largest envelope.
        """
        # The members of a group have the same parents, whose results are made once.
        parents = (step.workflow_id, tuple(step.parents))
        if parents not in self._made:
            room = [self._room]
            self._made[parents] = [self._result(place, room) for place in _parents(step)]
        return self._made[parents]

    def _result(self, place: workflows.Place, room: list[int]) -> JSON:
        step = self._steps[place]
        if step.is_join:
            results = [self._result(each, room) for each in _parents(step)]
            return results[-1] if step.last_result and results else results
        if step.result_size is None:
            return None
        if step.result is not None:
            size = len(dumps(step.result).encode())
            if size <= min(MAX_INLINE_BYTES, room[0]):
                room[0] -= size
                return step.result  # type: ignore[no-any-return]  # the result of a job is JSON
        return reference(step)


def _parents(step: WorkflowStep) -> list[workflows.Place]:
    return [(step.workflow_id, position) for position in step.parents]


def reference(step: WorkflowStep) -> dict[str, JSON]:
    """Return the reference to the result of a step that is too large (ojs-workflows §7.5)."""
    return {
        "result_ref": f"/ojs/v1/jobs/{step.pk}",
        "result_size_bytes": step.result_size,
        "result_content_type": "application/json",
    }
