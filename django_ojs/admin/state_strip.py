"""The path of a job through the state machine (ojs-core §6), with the time of each state."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from django_ojs.admin.job_list import STATE_BADGES, Badge
from django_ojs.admin.timeline import waited_before
from django_ojs.models import Attempt, Job
from django_ojs.spec.states import TERMINAL, State

#: How many visits are shown at the beginning and at the end of a longer path.
_FIRST: Final = 3
_LAST: Final = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A state that a job has been in; `lasted` is None for the last one, and if it is unknown."""

    state: State
    at: datetime | None
    lasted: timedelta | None = None

    @property
    def badge(self) -> Badge:
        return STATE_BADGES[self.state]


@dataclass(frozen=True, kw_only=True, slots=True)
class StateStrip:
    """The visits; `hidden` ones in the middle are left out. `description` is the path in words."""

    first: Sequence[Visit]
    hidden: int
    last: Sequence[Visit]
    description: str


def state_strip(job: Job, attempts: Sequence[Attempt]) -> StateStrip:
    found = _visits(job, attempts)
    visits = [
        Visit(state=state, at=at, lasted=None if at is None or end is None else end - at)
        for (state, at), (_, end) in pairwise([*found, (found[-1][0], None)])
    ]
    hidden = max(0, len(visits) - _FIRST - _LAST)
    return StateStrip(
        first=visits[:_FIRST] if hidden else (),
        hidden=hidden,
        last=visits[-_LAST:] if hidden else visits,
        description=" → ".join(str(visit.badge.word) for visit in visits),
    )


def _visits(job: Job, attempts: Sequence[Attempt]) -> list[tuple[State, datetime | None]]:
    """Return the states that a job has been in, in order, as far as its rows show them."""
    visits: list[tuple[State, datetime | None]] = []
    if job.activated_at is not None or job.state == State.PENDING:
        visits.append((State.PENDING, job.created_at))
    elif "scheduled_at" in job.options or job.state == State.SCHEDULED:
        visits.append((State.SCHEDULED, job.created_at))
    for index, attempt in enumerate(attempts):
        visits += _run(attempt.started_at, waited_before(job, attempts, index))
        if attempt.retry_delay_ms is not None:
            visits.append((State.RETRYABLE, attempt.finished_at))
    current = State(job.state)
    is_stored = bool(attempts) and attempts[-1].run == job.run
    has_ended_run = current in TERMINAL and bool(job.run) and job.started_at is not None
    if current is State.ACTIVE or (has_ended_run and not is_stored):
        visits += _run(job.started_at, job.waited)
    elif current in TERMINAL and not job.run and job.enqueued_at is not None:
        visits.append((State.AVAILABLE, job.enqueued_at))
    if not visits or visits[-1][0] is not current:
        since = job.enqueued_at if current is State.AVAILABLE else job.finished_at
        visits.append((current, since))
    return visits


def _run(started: datetime | None, waited: timedelta | None) -> list[tuple[State, datetime | None]]:
    available = None
    if started is not None and waited is not None:
        available = started.astimezone(UTC) - waited
    return [(State.AVAILABLE, available), (State.ACTIVE, started)]
