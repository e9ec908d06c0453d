"""The form of events (ojs-events §2, §3, ojs-realtime §4.1)."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

from django_ojs.spec.ids import parse_id
from django_ojs.spec.published import STATE_CHANGED, TRANSITIONS, EventType
from django_ojs.spec.times import format_timestamp

SPECVERSION: Final = "1.0"
_PREFIX: Final = "evt_"


def matches_state_changed(patterns: Iterable[str]) -> bool:
    """Return whether one of these patterns matches `job.state_changed`."""
    return any(
        STATE_CHANGED.startswith(pattern.removesuffix("*"))
        if pattern.endswith("*")
        else pattern == STATE_CHANGED
        for pattern in patterns
    )


def state_change(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `job.state_changed` for an event, or None if the event is not a transition.

    The first event of a job is not one, because the job had no state before.
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

    It is the worker that the data names, the scheduler for an expired job, cron, or else the API.
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
