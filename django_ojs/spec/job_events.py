"""The data of job events (ojs-events §4.1).

No event carries arguments, results or backtraces: permission to read events does not include those,
and an event outlives its job. The document requires the message of an error; it is truncated.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django_ojs.spec.envelope import StoredJob
from django_ojs.spec.events import EventType, NewEvent
from django_ojs.spec.failure import clean
from django_ojs.spec.states import State
from django_ojs.spec.times import format_timestamp, milliseconds_between

MAX_MESSAGE_CHARACTERS: Final = 1_000
_MAX_TRACE_ID_CHARACTERS: Final = 64
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def enqueued(job: StoredJob, before: State | None = None) -> NewEvent:
    """The job became available; `before` is its state until then, None for a new job."""
    data: dict[str, Any] = {"priority": job.priority}
    if job.due_at is not None:
        data["scheduled_at"] = format_timestamp(job.due_at)
    return _event(EventType.JOB_ENQUEUED, job, State.AVAILABLE, data, before)


def scheduled(job: StoredJob, before: State | None = None) -> NewEvent:
    """The job was accepted for later; `before` is its state until then, None for a new job."""
    data = {"scheduled_at": _time(job.due_at)}
    return _event(EventType.JOB_SCHEDULED, job, State.SCHEDULED, data, before)


def started(job: StoredJob) -> NewEvent:
    """A worker claimed the job."""
    return _event(EventType.JOB_STARTED, job, State.ACTIVE, _run(job), State.AVAILABLE)


def completed(job: StoredJob) -> NewEvent:
    data = _run(job) | {"duration_ms": _milliseconds(job.started_at, job.finished_at)}
    return _event(EventType.JOB_COMPLETED, job, State.COMPLETED, data, State.ACTIVE)


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
    return _event(EventType.JOB_FAILED, job, state, data)


def retrying(job: StoredJob, error: Mapping[str, Any], *, worker_id: str | None) -> NewEvent:
    data = {
        "worker_id": worker_id or "",
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "next_retry_at": _time(job.due_at),
        "error": error_of(error),
    }
    return _event(EventType.JOB_RETRYING, job, State.RETRYABLE, data, State.ACTIVE)


def discarded(
    job: StoredJob,
    error: Mapping[str, Any],
    *,
    worker_id: str | None,
    dead_letter: bool,
    before: State = State.ACTIVE,
) -> NewEvent:
    """A failure ended the job, or an operator did."""
    data = {
        "worker_id": worker_id or "",
        "total_attempts": job.attempt,
        "last_error": error_of(error),
        "dead_letter": dead_letter,
    }
    return _event(EventType.JOB_DISCARDED, job, State.DISCARDED, data, before)


def cancelled(job: StoredJob, before: State) -> NewEvent:
    return _event(EventType.JOB_CANCELLED, job, State.CANCELLED, {}, before)


def expired(job: StoredJob, before: State) -> NewEvent:
    """The deadline passed before the job ran."""
    data = {
        "created_at": _time(job.created_at),
        "expired_at": _time(job.finished_at),
        "ttl_ms": _milliseconds(job.created_at, job.expires_at),
    }
    return _event(EventType.JOB_EXPIRED, job, State.DISCARDED, data, before)


def heartbeat(job: StoredJob) -> NewEvent:
    """The lease was extended."""
    data = _run(job) | {"visible_until": _time(job.lease_until)}
    return _event(EventType.JOB_HEARTBEAT, job, State.ACTIVE, data)


def progress(job: StoredJob, percent: float, message: str = "") -> NewEvent:
    """The handler reported progress, in per cent."""
    data = _run(job) | {"progress_percent": percent}
    if message:
        data["progress_message"] = clean(message, MAX_MESSAGE_CHARACTERS)
    return _event(EventType.JOB_PROGRESS, job, State.ACTIVE, data)


def stalled(job: StoredJob) -> NewEvent:
    """The reports of progress of a run have stopped."""
    known = job.progress or {}
    data = _run(job) | {"last_update": known.get("updated_at")}
    if known.get("progress") is not None:
        data["last_progress"] = known["progress"]
    return _event(EventType.PROGRESS_STALLED, job, State.ACTIVE, data)


def checkpointed(job: StoredJob, *, sequence: int, size: int) -> NewEvent:
    """A run saved a checkpoint, of so many bytes."""
    data = _run(job) | {"sequence": sequence, "size_bytes": size}
    return _event(EventType.JOB_CHECKPOINTED, job, State.ACTIVE, data)


def _event(
    type: EventType,
    job: StoredJob,
    state: State,
    data: Mapping[str, Any],
    before: State | None = None,
) -> NewEvent:
    """Return an event of a job. `before` is the state that this event says the job has left."""
    key = str(job.id)
    which = {"job_id": key, "job_type": job.type, "queue": job.queue, "state": state.value}
    if before is not None:
        which["previous_state"] = before.value
    if trace_id := _trace_id(job.meta):
        which["trace_id"] = trace_id
    return NewEvent(type=type, subject=key, queue=job.queue, data={**which, **data})


def _trace_id(meta: Mapping[str, Any]) -> str | None:
    """Return the trace of a job, from whichever member its meta has (ojs-events §8)."""
    given, parent = meta.get("trace_id"), meta.get("traceparent")
    if isinstance(given, str) and 0 < len(given) <= _MAX_TRACE_ID_CHARACTERS:
        return given
    if isinstance(parent, str) and (found := _TRACEPARENT.fullmatch(parent)):
        return found[1]
    return None


def _run(job: StoredJob) -> dict[str, Any]:
    # A claim over HTTP need not name its worker.
    return {"worker_id": job.worker_id or "", "attempt": job.attempt}


def error_of(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the error of a run that its events have."""
    # The HTTP binding's and the events' `code` is core's `type`.
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
