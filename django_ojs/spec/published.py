"""The events that are published: their types, subjects and data (ojs-events §4).

`hooks.publish` takes them. `extensions/events/spec.py` has the form in which they are stored and
sent.

No data carries results, backtraces, or arguments (except in limit keys): permission to read events
does not include those, and an event outlives its job.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from django_ojs.spec.failure import clean
from django_ojs.spec.states import State

if TYPE_CHECKING:
    from django_ojs.spec.envelope import StoredJob

#: A longer message is cut.
MAX_MESSAGE_CHARACTERS: Final = 1_000
_MAX_TRACE_ID_CHARACTERS: Final = 64
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class EventType(StrEnum):
    """The types of events. The catalogue is closed."""

    JOB_ENQUEUED = "job.enqueued"
    JOB_STARTED = "job.started"
    JOB_COMPLETED = "job.completed"
    JOB_FAILED = "job.failed"
    JOB_DISCARDED = "job.discarded"
    JOB_RETRYING = "job.retrying"
    JOB_CANCELLED = "job.cancelled"
    JOB_HEARTBEAT = "job.heartbeat"
    JOB_SCHEDULED = "job.scheduled"
    JOB_EXPIRED = "job.expired"
    JOB_PROGRESS = "job.progress"
    # ojs-progress §11.1.
    PROGRESS_STALLED = "progress.stalled"
    # ojs-durable-execution, DUR-R003.
    JOB_CHECKPOINTED = "job.checkpointed"
    QUEUE_PAUSED = "queue.paused"
    QUEUE_RESUMED = "queue.resumed"
    # queue-config §10.1.
    QUEUE_CREATED = "queue.created"
    QUEUE_DELETED = "queue.deleted"
    QUEUE_CONFIG_UPDATED = "queue.config_updated"
    WORKER_STARTED = "worker.started"
    WORKER_STOPPED = "worker.stopped"
    WORKER_QUIET = "worker.quiet"
    WORKER_HEARTBEAT = "worker.heartbeat"
    WORKFLOW_STARTED = "workflow.started"
    WORKFLOW_STEP_COMPLETED = "workflow.step_completed"
    # ojs-workflows, appendix B.
    WORKFLOW_CREATED = "workflow.created"
    WORKFLOW_STEP_FAILED = "workflow.step_failed"
    WORKFLOW_JOB_COMPLETED = "workflow.job_completed"
    WORKFLOW_JOB_FAILED = "workflow.job_failed"
    WORKFLOW_CALLBACK_FIRED = "workflow.callback_fired"
    WORKFLOW_CANCELLED = "workflow.cancelled"
    WORKFLOW_COMPLETED = "workflow.completed"
    WORKFLOW_FAILED = "workflow.failed"
    CRON_TRIGGERED = "cron.triggered"
    CRON_SKIPPED = "cron.skipped"
    # backpressure §10.1.
    BACKPRESSURE_WARNING = "backpressure.warning"
    BACKPRESSURE_REJECTED = "backpressure.rejected"
    BACKPRESSURE_DROPPED = "backpressure.dropped"
    BACKPRESSURE_CLEARED = "backpressure.cleared"
    # rate-limiting §11.1.
    RATE_LIMIT_EXCEEDED = "rate_limit.exceeded"
    RATE_LIMIT_RELEASED = "rate_limit.released"
    RATE_LIMIT_DROPPED = "rate_limit.dropped"
    RATE_LIMIT_DYNAMIC_ADJUSTED = "rate_limit.dynamic_adjusted"


#: The name of any transition (ojs-realtime §4.1). Nothing is published under it, because the event
#: of the transition says the same.
STATE_CHANGED: Final = "job.state_changed"

#: Each transition of a job publishes one of these. A failed run publishes retrying, discarded or
#: enqueued, beside `job.failed`.
TRANSITIONS: Final = frozenset(
    {
        EventType.JOB_ENQUEUED,
        EventType.JOB_SCHEDULED,
        EventType.JOB_STARTED,
        EventType.JOB_COMPLETED,
        EventType.JOB_RETRYING,
        EventType.JOB_DISCARDED,
        EventType.JOB_CANCELLED,
        EventType.JOB_EXPIRED,
    }
)

_PATTERN: Final = re.compile(r"\*|[a-z][a-z_]*\.(\*|[a-z][a-z_]*)")


def matching(patterns: Iterable[str]) -> frozenset[EventType]:
    """Return the types that names and patterns (`job.*`, `*`) match (ojs-events §6.1).

    A well-formed name that the catalogue lacks matches nothing. Raises ValueError for an ill-formed
    one.
    """
    found: set[EventType] = set()
    for pattern in patterns:
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            raise ValueError("an event type is a name such as job.failed, or job.*, or *")
        start = pattern.removesuffix("*")
        whole = start == pattern
        found |= {t for t in EventType if (t == pattern if whole else t.startswith(start))}
    return frozenset(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEvent:
    """An event to publish. `queue` is empty when it concerns no queue."""

    type: EventType
    subject: str
    queue: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class PastEvent(NewEvent):
    """An event that was kept, and when it was published."""

    time: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class PastAct:
    """What an operator did to an object; `changes` has the new values of the changed fields."""

    action: str
    subject: str
    by: str
    time: datetime
    changes: Mapping[str, Any] = field(default_factory=dict)


def of_queue(type: EventType, name: str, **data: Any) -> NewEvent:
    """Return an event of a queue. A value of None in `data` is left out, a long text is cut."""
    given = {
        key: clean(value, 255) if isinstance(value, str) else value
        for key, value in data.items()
        if value is not None
    }
    return NewEvent(type=type, subject=name, queue=name, data={"queue": name, **given})


def of_worker(type: EventType, worker_id: str, **data: Any) -> NewEvent:
    """Return an event of a worker. A value of None in `data` is left out."""
    given = {key: value for key, value in data.items() if value is not None}
    return NewEvent(type=type, subject=worker_id, data={"worker_id": worker_id, **given})


def of_job(
    type: EventType,
    job: "StoredJob",
    state: State,
    data: Mapping[str, Any],
    before: State | None = None,
) -> NewEvent:
    """Return an event of a job. `before` is the state that the job has left by this event."""
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


def of_run(type: EventType, job: "StoredJob", **data: Any) -> NewEvent:
    """Return an event of an active job, with its worker."""
    return of_job(type, job, State.ACTIVE, {**run_of(job), **data})


def run_of(job: "StoredJob") -> dict[str, Any]:
    """Return the members of an event's data that name the run of a job."""
    # A claim over HTTP need not name its worker.
    return {"worker_id": job.worker_id or "", "attempt": job.attempt}
