"""The timeline of a job's runs: the worker, the waiting and running time and the error of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.utils.translation import pgettext

from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.jobs.redaction import redacted
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed

#: The width of the axis, and of the shortest run, in units of the SVG.
WIDTH: Final = 1000
_MIN_WIDTH: Final = 4.0

#: At most this many of the latest runs are shown.
MAX_RUNS: Final = 50

#: The outcomes of a run that are not failures.
_NO_FAILURE: Final = frozenset(
    {AttemptOutcome.RETURNED, AttemptOutcome.SHUTDOWN, AttemptOutcome.CANCELLED}
)
#: In these states the latest run has ended, and it is stored if it counts as an attempt.
_BETWEEN_RUNS: Final = frozenset({State.AVAILABLE, State.RETRYABLE, State.SCHEDULED})


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineRun:
    """One run. `waited` is how long the job was available before it, if that is known."""

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


def timeline(job: Job, attempts: Sequence[Attempt], now: datetime) -> list[TimelineRun]:
    """Return the latest runs, oldest first, on an axis that begins when the job was created."""
    found = [_stored_run(job, attempts, index) for index in range(len(attempts))]
    if not attempts or attempts[-1].run != job.run:
        found += _latest_run(job)
    times = [
        time.astimezone(UTC)
        for run in found
        for time in (run.started, run.finished)
        if time is not None
    ]
    if not times:
        return []
    first = min([job.created_at.astimezone(UTC), *times])
    last = max([*times, now] if job.state == State.ACTIVE else times)
    return [_positioned(run, first, last, now) for run in found[-MAX_RUNS:]]


def _stored_run(job: Job, attempts: Sequence[Attempt], index: int) -> TimelineRun:
    attempt = attempts[index]
    waited = waited_before(job, attempts, index)
    started, finished = attempt.started_at, attempt.finished_at
    delay = attempt.retry_delay_ms
    return TimelineRun(
        number=attempt.run,
        attempt=attempt.attempt,
        outcome=attempt.get_outcome_display(),
        level="fair" if attempt.outcome in _NO_FAILURE else "bad",
        worker_id=attempt.worker_id,
        started=started,
        finished=finished,
        waited=waited,
        ran=None if started is None else elapsed(started, finished),
        error=redacted(attempt.error) if isinstance(attempt.error, dict) else None,
        retried_in=None if delay is None else timedelta(milliseconds=delay),
    )


def _latest_run(job: Job) -> list[TimelineRun]:
    if job.started_at is None or not job.run or job.state in _BETWEEN_RUNS:
        return []
    running = job.state == State.ACTIVE
    return [
        TimelineRun(
            number=job.run,
            attempt=job.attempt,
            outcome=pgettext("outcome of a run", "Running")
            if running
            else str(job.get_state_display()),
            level="blue" if running else "good" if job.state == State.COMPLETED else "bad",
            worker_id=job.worker_id,
            started=job.started_at,
            finished=job.finished_at,
            waited=job.waited,
            ran=None if job.finished_at is None else elapsed(job.started_at, job.finished_at),
        )
    ]


def waited_before(job: Job, attempts: Sequence[Attempt], index: int) -> timedelta | None:
    """Return how long a job was available before one of its runs, if that is known."""
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
        ended = before.finished_at.astimezone(UTC)
        began = None if delay is None else ended + timedelta(milliseconds=delay)
    return None if began is None else elapsed(began, attempt.started_at)


def _positioned(run: TimelineRun, first: datetime, last: datetime, now: datetime) -> TimelineRun:
    length = max(elapsed(first, last).total_seconds(), 0.001)

    def at(moment: datetime) -> float:
        return elapsed(first, moment).total_seconds() / length * WIDTH

    started = (run.started or run.finished or now).astimezone(UTC)
    start, end = at(started), at(run.finished or now)
    waited = at(started - run.waited) if run.waited is not None else start
    start = min(start, WIDTH - _MIN_WIDTH)
    return replace(
        run,
        x=f"{start:.1f}",
        width=f"{max(_MIN_WIDTH, min(WIDTH, end) - start):.1f}",
        wait_x=f"{max(0.0, waited):.1f}",
        wait_width=f"{max(0.0, start - max(0.0, waited)):.1f}",
    )
