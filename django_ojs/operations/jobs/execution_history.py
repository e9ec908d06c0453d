"""The history of a job across its attempts (ojs-execution-history §3, §4).

It is computed from the rows of the job and its attempts, so no further row is stored. It exists as
long as the job, unless it is deleted earlier.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models.functions import Now

from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.access import operator
from django_ojs.spec import json, times
from django_ojs.spec.failure import clean
from django_ojs.spec.published import MAX_MESSAGE_CHARACTERS
from django_ojs.spec.states import State
from django_ojs.spec.times import milliseconds_between
from django_ojs.storage import database, transitions

#: A history has at most this many of the latest unsuccessful runs, which keeps it below 1,000
#: events (§6).
MAX_RUNS: Final = 400

_RETURNED: Final = frozenset({AttemptOutcome.RETURNED, AttemptOutcome.SHUTDOWN})


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEvent:
    """An event of a job. `run` and `step` are its position, which later events do not change."""

    run: int
    step: int
    type: str
    time: datetime
    data: dict[str, Any]
    worker_id: str | None = None

    def render(self, job: Job) -> dict[str, Any]:
        """Return the event as a record of the specification."""
        out: dict[str, Any] = {
            "id": f"evt_{job.pk}.{self.run}.{self.step}",
            "job_id": str(job.pk),
            "event_type": self.type,
            "timestamp": times.format_timestamp(self.time),
            "data": self.data,
        }
        if self.worker_id is not None:
            out["actor"] = {"type": "worker", "id": self.worker_id}
        return out


#: The steps of a run: its start, its end, and the end of the job.
_START, _END, _JOB_END = range(3)


def read(job: Job) -> list[HistoryEvent]:
    """Return the events of a job, oldest first."""
    newest = Attempt.primary.filter(job_id=job.pk).order_by("-run")[:MAX_RUNS]
    attempts = list(newest)[::-1]
    found = [_creation(job)]
    for attempt in attempts:
        found += _of_attempt(job, attempt)
    if job.started_at is not None and job.run > (attempts[-1].run if attempts else 0):
        found += _of_latest_run(job)
    found += _of_end(job)
    deleted = job.history_deleted_at
    return found if deleted is None else [event for event in found if event.time > deleted]


@database.write_transaction
def delete(job_id: UUID) -> int:
    """Delete the history of a job, even of one that has not ended. Return how many events it had.

    The job keeps its arguments, its result and its last error. The `errors` of its attempts are
    part of the history. Raises JobNotFound.
    """
    job = transitions.lock(job_id)
    number = len(read(job))
    Attempt.primary.filter(job_id=job.pk).delete()
    Job.primary.filter(pk=job.pk).update(history_deleted_at=Now())
    operator.acted("job.history_deleted", job_id, type=job.type, queue=job.queue, events=number)
    return number


def _start(
    run: int, attempt: int, time: datetime | None, worker_id: str | None
) -> list[HistoryEvent]:
    if time is None:
        return []
    data = {"worker_id": worker_id or "", "attempt": attempt}
    return [
        HistoryEvent(
            run=run,
            step=_START,
            type="job.attempt_started",
            time=time,
            data=data,
            worker_id=worker_id,
        )
    ]


def _creation(job: Job) -> HistoryEvent:
    data = {
        "queue": job.queue,
        "type": job.type,
        "args_size_bytes": len(json.dumps(job.args).encode()),
    }
    return HistoryEvent(run=0, step=0, type="job.created", time=job.created_at, data=data)


def _of_attempt(job: Job, attempt: Attempt) -> Iterator[HistoryEvent]:
    """Yield the start and the end of an unsuccessful run."""
    yield from _start(attempt.run, attempt.attempt, attempt.started_at, attempt.worker_id)
    data: dict[str, Any] = {"attempt": attempt.attempt, "outcome": attempt.outcome}
    if attempt.started_at is not None:
        data["duration_ms"] = milliseconds_between(attempt.started_at, attempt.finished_at)
    if attempt.retry_delay_ms is not None:
        data["retry_delay_ms"] = attempt.retry_delay_ms
    if attempt.error is not None:
        data["error"] = _message(attempt.error)
        data["error_type"] = attempt.error.get("type", "")
    type = "job.attempt_failed"
    if attempt.outcome == AttemptOutcome.CANCELLED:
        return  # The event of the job's end reports this.
    if attempt.outcome in _RETURNED:
        type = "job.state_changed"
        waits = attempt.retry_delay_ms is not None
        after = State.RETRYABLE if waits else State.AVAILABLE
        data |= {"from": State.ACTIVE.value, "to": after.value}
    else:
        data["will_retry"] = attempt.run < job.run or job.state != State.DISCARDED
    yield HistoryEvent(
        run=attempt.run,
        step=_END,
        type=type,
        time=attempt.finished_at,
        data=data,
        worker_id=attempt.worker_id,
    )


def _of_latest_run(job: Job) -> Iterator[HistoryEvent]:
    """Yield the start of a run that goes on or has completed, and its end."""
    yield from _start(job.run, job.attempt, job.started_at, job.worker_id)
    if job.state == State.COMPLETED and job.started_at and job.finished_at:
        duration = milliseconds_between(job.started_at, job.finished_at)
        yield HistoryEvent(
            run=job.run,
            step=_END,
            type="job.attempt_completed",
            time=job.finished_at,
            data={"attempt": job.attempt, "duration_ms": duration},
            worker_id=job.worker_id,
        )


def _of_end(job: Job) -> Iterator[HistoryEvent]:
    """Yield the end of a job that was cancelled or discarded."""
    if job.finished_at is None or job.state == State.COMPLETED:
        return
    data: dict[str, Any] = {}
    if job.state == State.DISCARDED:
        data = {"total_attempts": job.attempt, "dead_letter": job.dead_letter}
        if job.discard_reason is not None:
            data["reason"] = job.discard_reason
        if job.error is not None:
            data["last_error"] = _message(job.error)
    yield HistoryEvent(
        run=job.run, step=_JOB_END, type=f"job.{job.state}", time=job.finished_at, data=data
    )


def _message(error: dict[str, Any]) -> str:
    return clean(str(error.get("message", "")), MAX_MESSAGE_CHARACTERS)
