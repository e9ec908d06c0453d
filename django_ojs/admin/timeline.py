"""The runs of a job on an axis of time: who ran it, how long it waited and ran, what went wrong."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django_ojs.admin.payloads import redacted
from django_ojs.admin.state_diagram import HARMLESS
from django_ojs.models import Attempt, Job
from django_ojs.spec.states import State

#: The axis, in units of its drawing.
WIDTH: Final = 1000
#: A run that took no time at all is still seen.
_LEAST: Final = 4.0

#: Runs that are shown; the first ones of a job that never gives up are left out.
SHOWN: Final = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run. `waited` is how long it could have run before, where that is known."""

    number: int
    attempt: int
    outcome: str
    level: str
    worker_id: str | None
    started: datetime | None
    finished: datetime | None
    waited: timedelta | None
    ran: timedelta | None
    error: dict[str, Any] | None = None
    retried_in: timedelta | None = None
    x: str = "0"
    width: str = "0"
    wait_x: str = "0"
    wait_width: str = "0"


def runs(job: Job, attempts: Sequence[Attempt], now: datetime) -> list[Run]:
    """Return the runs, oldest first, with their places on an axis from the first to the last."""
    found = [_ended(job, attempts, index) for index in range(len(attempts))]
    if not attempts or attempts[-1].run != job.run:
        found += _latest(job)
    times = [time for run in found for time in (run.started, run.finished) if time is not None]
    if not times:
        return []
    first = min([job.created_at, *times])
    last = max([*times, now] if job.state == State.ACTIVE else times)
    return [_placed(run, first, last, now) for run in found[-SHOWN:]]


def _ended(job: Job, attempts: Sequence[Attempt], index: int) -> Run:
    attempt = attempts[index]
    waited = _waited(job, attempts, index)
    started, finished = attempt.started_at, attempt.finished_at
    delay = attempt.retry_delay_ms
    return Run(
        number=attempt.run,
        attempt=attempt.attempt,
        outcome=attempt.get_outcome_display(),
        level="fair" if attempt.outcome in HARMLESS else "bad",
        worker_id=attempt.worker_id,
        started=started,
        finished=finished,
        waited=waited,
        ran=None if started is None else finished - started,
        error=redacted(attempt.error) if isinstance(attempt.error, dict) else None,
        retried_in=None if delay is None else timedelta(milliseconds=delay),
    )


def _latest(job: Job) -> list[Run]:
    if job.started_at is None or not job.run or job.state in (State.AVAILABLE, State.RETRYABLE):
        return []
    running = job.state == State.ACTIVE
    return [
        Run(
            number=job.run,
            attempt=job.attempt,
            outcome="Running" if running else str(job.get_state_display()),
            level="blue" if running else "good" if job.state == State.COMPLETED else "bad",
            worker_id=job.worker_id,
            started=job.started_at,
            finished=job.finished_at,
            waited=job.waited,
            ran=None if job.finished_at is None else job.finished_at - job.started_at,
        )
    ]


def _waited(job: Job, attempts: Sequence[Attempt], index: int) -> timedelta | None:
    attempt = attempts[index]
    if attempt.started_at is None:
        return None
    if attempt.run == job.run and job.started_at == attempt.started_at:
        return job.waited
    if index == 0:
        began = job.created_at if "scheduled_at" not in job.options else None
    else:
        before = attempts[index - 1]
        delay = before.retry_delay_ms
        began = None if delay is None else before.finished_at + timedelta(milliseconds=delay)
    return None if began is None else max(timedelta(0), attempt.started_at - began)


def _placed(run: Run, first: datetime, last: datetime, now: datetime) -> Run:
    whole = max((last - first).total_seconds(), 0.001)

    def at(moment: datetime) -> float:
        return (moment - first).total_seconds() / whole * WIDTH

    started = run.started or run.finished or now
    start, end = at(started), at(run.finished or now)
    waited = at(started - run.waited) if run.waited is not None else start
    start = min(start, WIDTH - _LEAST)
    return replace(
        run,
        x=f"{start:.1f}",
        width=f"{max(_LEAST, min(WIDTH, end) - start):.1f}",
        wait_x=f"{max(0.0, waited):.1f}",
        wait_width=f"{max(0.0, start - max(0.0, waited)):.1f}",
    )


__all__ = ["Run", "runs"]
