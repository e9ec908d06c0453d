"""The data of the transitions of a job (ojs-events §4.1).

The specification requires the message of an error; it is truncated.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_ojs.spec.envelope import StoredJob
from django_ojs.spec.failure import clean
from django_ojs.spec.published import MAX_MESSAGE_CHARACTERS, EventType, NewEvent, of_job, run_of
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp, milliseconds_between


def enqueued(job: StoredJob, before: State | None = None) -> NewEvent:
    """The job became available; `before` is its state until then, None for a new job."""
    data: dict[str, Any] = {"priority": job.priority}
    if job.due_at is not None:
        data["scheduled_at"] = format_timestamp(job.due_at)
    return of_job(EventType.JOB_ENQUEUED, job, State.AVAILABLE, data, before)


def scheduled(job: StoredJob, before: State | None = None) -> NewEvent:
    """The job was accepted for later; `before` is its state until then, None for a new job."""
    data = {"scheduled_at": _time(job.due_at)}
    return of_job(EventType.JOB_SCHEDULED, job, State.SCHEDULED, data, before)


def started(job: StoredJob) -> NewEvent:
    """A worker claimed the job."""
    return of_job(EventType.JOB_STARTED, job, State.ACTIVE, run_of(job), State.AVAILABLE)


def completed(job: StoredJob, seconds: float | None = None) -> NewEvent:
    """The job was completed; `seconds` is how long its handler ran, if that is known."""
    if seconds is None:
        duration = _milliseconds(job.started_at, job.finished_at)
    else:
        duration = round(seconds * 1000)
    data = run_of(job) | {"duration_ms": duration}
    return of_job(EventType.JOB_COMPLETED, job, State.COMPLETED, data, State.ACTIVE)


def failed(
    job: StoredJob, error: Mapping[str, Any], state: State, *, worker_id: str | None
) -> NewEvent:
    """A run failed; `state` is the new state of the job, `worker_id` the worker that ran it."""
    retryable = error.get("retryable")
    if retryable is None:
        retryable = state is not State.DISCARDED
    data = {
        "worker_id": worker_id or "",
        "attempt": job.attempt,
        "error": error_of(error) | {"retryable": retryable},
    }
    return of_job(EventType.JOB_FAILED, job, state, data)


def retrying(job: StoredJob, error: Mapping[str, Any], *, worker_id: str | None) -> NewEvent:
    data = {
        "worker_id": worker_id or "",
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "next_retry_at": _time(job.due_at),
        "error": error_of(error),
    }
    return of_job(EventType.JOB_RETRYING, job, State.RETRYABLE, data, State.ACTIVE)


def discarded(
    job: StoredJob,
    error: Mapping[str, Any],
    *,
    worker_id: str | None,
    dead_letter: bool,
    before: State = State.ACTIVE,
) -> NewEvent:
    """The job was discarded: by a failure, a full queue, a rate limit or an operator."""
    data = {
        "worker_id": worker_id or "",
        "total_attempts": job.attempt,
        "last_error": error_of(error),
        "dead_letter": dead_letter,
    }
    return of_job(EventType.JOB_DISCARDED, job, State.DISCARDED, data, before)


def cancelled(job: StoredJob, before: State) -> NewEvent:
    return of_job(EventType.JOB_CANCELLED, job, State.CANCELLED, {}, before)


def expired(job: StoredJob, before: State) -> NewEvent:
    """The deadline passed before the job ran."""
    data = {
        "created_at": _time(job.created_at),
        "expired_at": _time(job.finished_at),
        "ttl_ms": _milliseconds(job.created_at, job.expires_at),
    }
    return of_job(EventType.JOB_EXPIRED, job, State.DISCARDED, data, before)


def error_of(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the error of a run that events contain."""
    # The HTTP binding and ojs-events call `code` what ojs-core calls `type`.
    return {
        "code": error.get("type", ""),
        "message": clean(error.get("message", ""), MAX_MESSAGE_CHARACTERS),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_timestamp(moment)


def _milliseconds(start: datetime | None, end: datetime | None) -> int:
    if start is None or end is None:
        return 0
    return milliseconds_between(start, end)
