"""Workers that ended. They are read from events, because an ended worker has no row.

`KEEP_EVENTS` must have `worker.stopped`, as it has by default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet, Subquery

from django_ojs import formatting
from django_ojs.extension import WantedEvents
from django_ojs.hooks import registry
from django_ojs.models import Attempt, Worker
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.spec.published import EventType, PastEvent

#: How long a worker that died is listed, among how many of the latest events it is found, among how
#: many of the latest runs its jobs are found, and how many of these are returned.
LISTED_FOR: Final = timedelta(days=1)
MOST_EVENTS: Final = 20_000
MOST_RUNS: Final = 10_000
MOST_JOBS: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedWorker:
    """A worker that ended. `exit_code` is negative for a signal, and None if it is not known."""

    id: str
    ended_at: datetime
    reason: str
    exit_code: int | None = None
    jobs_rescued: int | None = None
    uptime: timedelta | None = None
    queues: list[str] = field(default_factory=list)

    @property
    def died(self) -> bool:
        """Whether it ended without shutting down."""
        return self.reason == "error"

    @property
    def how(self) -> str:
        """How it ended, in a few words."""
        if self.exit_code is None:
            return "died" if self.died else "shut down"
        return formatting.exit_code(self.exit_code)


def dead(limit: int = 100) -> list[EndedWorker]:
    """Return the workers that died in the last day, the latest first."""
    wanted = WantedEvents(
        types=(EventType.WORKER_STOPPED,),
        limit=limit,
        among=MOST_EVENTS,
        within=LISTED_FOR,
        data={"reason": "error"},
    )
    found: dict[str, EndedWorker] = {}
    for event in registry.brought("past_events", wanted):
        found.setdefault(event.subject, _of(event))
    # A worker may come back under its id.
    for alive in Worker.primary.filter(pk__in=found).values_list("pk", flat=True):
        del found[alive]
    return list(found.values())


def get(worker_id: str) -> EndedWorker | None:
    """Return how a worker ended, or None if its event is not kept any more."""
    stopped = _last(worker_id, EventType.WORKER_STOPPED)
    if stopped is None:
        return None
    started = _last(worker_id, EventType.WORKER_STARTED)
    return _of(stopped, {} if started is None else started.data)


def latest_runs() -> QuerySet[Attempt]:
    """Return the latest unsuccessful runs, which are a bounded range of the primary key."""
    newest = Subquery(Attempt.primary.order_by("-pk").values("pk")[:1])
    return Attempt.primary.filter(pk__gt=newest - MOST_RUNS)


def lost_jobs(worker_id: str) -> list[tuple[UUID, str]]:
    """Return the id and type of the jobs taken back from a worker, among the latest runs."""
    lost = latest_runs().filter(worker_id=worker_id, outcome=AttemptOutcome.LOST)
    return list(lost.order_by("-pk").values_list("job_id", "job__type")[:MOST_JOBS])


def _last(worker_id: str, type: EventType) -> PastEvent | None:
    wanted = WantedEvents(types=(type,), limit=1, subject=worker_id)
    found: list[PastEvent] = registry.brought("past_events", wanted)
    return found[0] if found else None


def _of(event: PastEvent, started: Mapping[str, Any] | None = None) -> EndedWorker:
    data, uptime = event.data, event.data.get("uptime_ms")
    return EndedWorker(
        id=event.subject,
        ended_at=event.time,
        reason=data.get("reason", ""),
        exit_code=data.get("exit_code"),
        jobs_rescued=data.get("jobs_rescued"),
        uptime=None if uptime is None else timedelta(milliseconds=uptime),
        queues=[str(name) for name in (started or {}).get("queues") or ()],
    )
