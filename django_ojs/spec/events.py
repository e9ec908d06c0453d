"""The vocabulary of events and their envelope (ojs-events §2 to §4, backpressure §10.1)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from django_ojs.spec.failure import clean
from django_ojs.spec.ids import parse_id
from django_ojs.spec.times import format_timestamp

SPECVERSION: Final = "1.0"
_PREFIX: Final = "evt_"


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


CATALOGUE: Final = frozenset(EventType)

#: What a stream sends for each transition (ojs-realtime §4.1). It is not stored: it follows from
#: the recorded event of the transition.
STATE_CHANGED: Final = "job.state_changed"

#: One event for each transition of a job. A failed run is one of retrying, discarded and enqueued
#: as well.
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

#: The default of KEEP_EVENTS: what an operator looks up later. Heartbeats are left out, because
#: one worker makes half a million of them a month, and cancelled jobs, because they were wanted.
KEPT_BY_DEFAULT: Final = (
    "backpressure.*",
    "queue.*",
    "worker.started",
    "worker.quiet",
    "worker.stopped",
    "job.discarded",
    "job.expired",
    "workflow.failed",
    "cron.*",
    "rate_limit.*",
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
        found |= {t for t in CATALOGUE if (t == pattern if whole else t.startswith(start))}
    return frozenset(found)


def matches_state_changed(patterns: Iterable[str]) -> bool:
    """Say whether one of these patterns matches `job.state_changed`."""
    return any(
        STATE_CHANGED.startswith(pattern.removesuffix("*"))
        if pattern.endswith("*")
        else pattern == STATE_CHANGED
        for pattern in patterns
    )


def state_change(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `job.state_changed` that an event says, None for one that is no transition.

    A new job makes none: no state was before.
    """
    data = event["data"]
    if event["type"] not in TRANSITIONS or "previous_state" not in data:
        return None
    return {
        "job_id": data["job_id"],
        "queue": data["queue"],
        "type": data["job_type"],
        "from": data["previous_state"],
        "to": data["state"],
        "timestamp": event["time"],
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEvent:
    """An event to publish. `queue` is empty when it concerns no queue."""

    type: EventType
    subject: str
    queue: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


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


def of_limit_key(type: EventType, key: str, **data: Any) -> NewEvent:
    """Return an event of a limit key. A value of None in `data` is left out."""
    # Its jobs may be in any queue, so it belongs to none.
    given = {name: value for name, value in data.items() if value is not None}
    return NewEvent(type=type, subject=key, data={"key": key, **given})


def render(
    *,
    event_id: UUID,
    type: str,
    time: datetime,
    subject: str,
    data: Mapping[str, Any],
    service: str,
) -> dict[str, Any]:
    """Return the envelope of an event (ojs-events §2)."""
    return {
        "specversion": SPECVERSION,
        "id": f"{_PREFIX}{event_id}",
        "type": type,
        "source": source(type, data, service),
        "time": format_timestamp(time),
        "subject": subject,
        "data": dict(data),
    }


def source(type: str, data: Mapping[str, Any], service: str) -> str:
    """Return the source of an event, as a URI (ojs-events §2.4).

    It is the worker that the data names, the scheduler for what only time causes, or the API.
    """
    if worker := data.get("worker_id"):
        return f"ojs://{service}/workers/{quote(worker, safe='')}"
    if type == EventType.JOB_EXPIRED:
        return f"ojs://{service}/scheduler"
    if type.startswith("cron."):
        return f"ojs://{service}/cron"
    return f"ojs://{service}/api"


def parse_event_id(text: str, field: str) -> UUID:
    """Return the UUID of an event's id, `evt_` and a UUIDv7. Raises InvalidRequest."""
    return parse_id(text.removeprefix(_PREFIX), field)


def made_at(event_id: UUID) -> datetime:
    """Return when an event's id was generated, by the clock of its process."""
    return datetime.fromtimestamp((event_id.int >> 80) / 1000, UTC)
