"""The settings of events."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django_ojs.setting import COUNT, DURATION, count, duration, setting, strings
from django_ojs.spec import published

#: The default of KEEP_EVENTS: what an operator looks up later. Heartbeats are left out, because
#: one worker makes half a million of them a month, and cancelled jobs, because they were wanted.
KEPT_EVENTS: Final = (
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
EVENTS: Final = "a list of event types, or patterns such as job.* or *"


def _events(value: object) -> frozenset[published.EventType]:
    patterns = strings(value)
    # `job.state_changed` stands for the events of all transitions.
    wanted = published.TRANSITIONS if published.STATE_CHANGED in patterns else frozenset()
    patterns = tuple(pattern for pattern in patterns if pattern != published.STATE_CHANGED)
    # A misspelt type must be rejected now, not noticed when its events are needed.
    if not all(published.matching([pattern]) for pattern in patterns):
        raise ValueError
    return published.matching(patterns) | wanted


@dataclass(frozen=True, kw_only=True)
class EventSettings:
    """Settings in `OJS`; names are the keys in lower case."""

    http_event_streams: int = setting(100, count, COUNT)
    http_event_stream_time: timedelta = setting(timedelta(minutes=5), duration, DURATION)
    http_event_rate: int = setting(100, count, COUNT)
    keep_events: frozenset[published.EventType] = setting(
        published.matching(KEPT_EVENTS), _events, EVENTS
    )
    keep_events_for: timedelta = setting(timedelta(days=30), duration, DURATION)
