"""Rebuild the history of a job whose failed runs were not stored (ojs-execution-history §9.5).

All other events are read from the row of the job, which cannot be lost alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final
from uuid import UUID

from django.utils import timezone

from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.access import audit_trail
from django_ojs.operations.fail import SPENDS_NONE
from django_ojs.operations.jobs.execution_history import MAX_RUNS, of_attempt
from django_ojs.spec.envelope.render import NOT_COMPLETED
from django_ojs.spec.states import State
from django_ojs.spec.times import elapsed
from django_ojs.storage import database, transitions

_FAILED: Final = frozenset(
    {
        *(AttemptOutcome.FAILED, AttemptOutcome.TIMEOUT, AttemptOutcome.LAPSED),
        *(AttemptOutcome.LOST, AttemptOutcome.REBUILT),
    }
)
#: The errors of runs that ended with their worker or their lease.
_OF_WORKERS: Final = ("worker_death", "visibility_timeout")
#: SQLite has milliseconds, and what becomes available gets its time rounded up, with a microsecond
#: for each job before it: it may be later than the start of the run.
_TICK: Final = timedelta(milliseconds=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """What was added to a history. `gaps` says what is estimated or stays unknown."""

    events: int
    approximate: bool
    gaps: Sequence[str]


@database.write_transaction
def rebuild(job_id: UUID) -> Rebuilt:
    """Add the failed runs of a job that its history has lost. Raises JobNotFound.

    The job knows how many attempts it has spent since it was enqueued or retried by hand, and the
    error and the start of the last one. A history that was deleted on request is not rebuilt.
    """
    job = transitions.lock(job_id)
    if job.history_deleted_at is not None:
        gap = "the history was deleted on request, and is not rebuilt"
        return Rebuilt(events=0, approximate=False, gaps=[gap])
    first = job.run - job.attempt + 1
    attempts = Attempt.primary.filter(job_id=job_id, run__gte=first)
    stored = {each.run: each for each in attempts.order_by("id")}
    missing = [run for run in range(first, job.run + 1) if run not in stored]
    current = _current_run(job, stored.get(job.run))
    failed = sum(_has_spent(each) for each in stored.values())
    lost = max(0, job.spent - current - failed)
    if current or (len(missing) > lost and _was_returned(job)):
        missing = [run for run in missing if run != job.run]
    # A run that was returned before its start has no row either, so the number decides.
    runs = missing[-min(lost, MAX_RUNS) :] if lost else []
    added = list(_attempts(job, runs, stored))
    Attempt.primary.bulk_create(added)
    events = sum(1 for each in added for _ in of_attempt(job, each))
    if added:
        audit_trail.record(
            "job.history_rebuilt", job_id, type=job.type, queue=job.queue, events=events
        )
    estimated = [each.run for each in added if not _is_exact(job, each)]
    return Rebuilt(
        events=events,
        approximate=bool(estimated),
        gaps=list(_gaps(estimated, job, is_certain=len(runs) == len(missing))),
    )


def _has_spent(attempt: Attempt) -> bool:
    """Whether a stored run is a failure, and spent an attempt: other jobs were not its cause."""
    if attempt.outcome not in _FAILED:
        return False
    if attempt.spent_attempt is not None:
        return attempt.spent_attempt
    return SPENDS_NONE not in str((attempt.error or {}).get("message", ""))


def _was_returned(job: Job) -> bool:
    """Whether the latest run was probably returned before its start.

    One whose worker died has no start either, but has its error.
    """
    return job.started_at is None and (job.error or {}).get("type") not in _OF_WORKERS


def _current_run(job: Job, latest: Attempt | None) -> int:
    """Return 1 if the latest run counts as an attempt, and is no failure."""
    if job.state in (State.ACTIVE, State.COMPLETED):
        return 1
    if job.state != State.CANCELLED or job.started_at is None:
        return 0
    if latest is not None:
        return int(latest.outcome == AttemptOutcome.CANCELLED)
    # It did not fail if it was cancelled while it ran. A failure sets the time of the next run.
    waits = (job.due_at, job.enqueued_at)
    return int(all(each is None or elapsed(job.started_at, each) < _TICK for each in waits))


def _attempts(job: Job, runs: Sequence[int], stored: dict[int, Attempt]) -> Iterator[Attempt]:
    for _, group in groupby(enumerate(runs), key=lambda each: each[1] - each[0]):
        together = [run for _, run in group]
        low, high = _bounds(job, together, stored)
        for index, run in enumerate(together, start=1):
            is_latest = run == job.run
            finished_at = low + (high - low) * index / (len(together) + 1)
            if is_latest:
                finished_at = _end_of_latest(job)
            yield Attempt(
                job_id=job.pk,
                attempt=job.attempt - (job.run - run),
                run=run,
                outcome=AttemptOutcome.REBUILT,
                started_at=job.started_at if is_latest else None,
                finished_at=finished_at,
                error=job.error if is_latest else None,
                spent_attempt=True,
            )


def _bounds(
    job: Job, together: Sequence[int], stored: dict[int, Attempt]
) -> tuple[datetime, datetime]:
    """Return the moments between which these runs, one after the other, have ended."""
    before, after = stored.get(together[0] - 1), stored.get(together[-1] + 1)
    low = job.created_at if before is None else before.finished_at
    if after is None:
        high = job.started_at or job.finished_at or job.enqueued_at or timezone.now()
    else:
        high = after.started_at or after.finished_at
    return low, max(low, high)


def _end_of_latest(job: Job) -> datetime:
    if job.finished_at is not None and _ended_by_run(job):
        return job.finished_at
    # It became available again later, except where it waits for that.
    moments = (job.started_at, job.enqueued_at)
    return max((each for each in moments if each is not None), default=job.created_at)


def _ended_by_run(job: Job) -> bool:
    return job.state == State.DISCARDED and job.discard_reason not in NOT_COMPLETED


def _is_exact(job: Job, attempt: Attempt) -> bool:
    return _ended_by_run(job) and attempt.run == job.run


def _gaps(estimated: Sequence[int], job: Job, *, is_certain: bool) -> Iterator[str]:
    if not estimated:
        return
    first, last = estimated[0], estimated[-1]
    which = f"run {first}" if first == last else f"{len(estimated)} runs from {first} to {last}"
    yield f"the end of {which} is estimated"
    unknown = [run for run in estimated if run != job.run]
    if unknown:
        yield f"the starts, the workers and the errors of {len(unknown)} of them are not known"
    if not is_certain:
        yield "other runs were returned before their start: which ones failed is not known"
