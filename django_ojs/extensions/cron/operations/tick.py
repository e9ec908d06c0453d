"""The tick: enqueue the jobs of cron jobs that are due (ojs-cron §7.3).

Any process may call it at any time. A compare-and-swap on `due_at`, in the transaction that stores
the job, decides: of several schedulers, only one moves a cron job on to its next occurrence and
enqueues its job; if it dies before the commit, it has done neither.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from django_ojs.extensions.cron import storage as cron_jobs
from django_ojs.extensions.cron.cron_events import SkipReason
from django_ojs.extensions.cron.models import CronJob, CronRun, CronRunPhase
from django_ojs.extensions.cron.operations import schedule
from django_ojs.extensions.cron.operations.firing import DueRun, enqueue, event_source, record
from django_ojs.extensions.cron.operations.held_jobs import release
from django_ojs.extensions.cron.operations.schedule import Passed
from django_ojs.extensions.cron.spec import CronExpressionError
from django_ojs.hooks import publish_all
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.spec.published import NewEvent
from django_ojs.storage import database, in_memory_state, raw_queries
from django_ojs.storage.database import BATCH
from django_ojs.storage.in_memory_state import LastQuery

logger = logging.getLogger("django_ojs.cron")

#: Seconds between two queries of a process. It is shorter than the interval of its maintenance.
INTERVAL = 0.4


class _Read(NamedTuple):
    """A cron job that is due, as it was read."""

    name: str
    expression: str
    timezone: str
    due_at: datetime
    next_run_at: datetime | None
    now: datetime


@dataclass(frozen=True, slots=True)
class _Due:
    """A cron job as it was read, and its occurrences that are due."""

    read: _Read
    passed: Passed
    error: str = ""

    def is_of(self, row: CronJob) -> bool:
        """Whether a cron job still has the schedule from which this was computed."""
        return (row.expression, row.timezone) == (self.read.expression, self.read.timezone)


class _Page:
    """Which cron jobs the next tick of a process looks at: the earliest ones that are due.

    If a page is full and some of its cron jobs have to wait, the next page begins after them; the
    first page follows the last one. So the others get their turn even if very many wait.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._after: tuple[datetime, str] | None = None

    def next(self, limit: int) -> Sequence[_Read]:
        due = (
            CronJob.primary.filter(due_at__lte=Now())
            .order_by("due_at", "name")
            .values_list("name", "expression", "timezone", "due_at", "next_run_at", Now())
        )
        if self._after is None:
            return _read(due[:limit])
        at, name = self._after
        is_later = Q(due_at__gt=at) | Q(due_at=at, name__gt=name)
        found = _read(due.filter(is_later)[:limit])
        if len(found) < limit:
            found += _read(due.exclude(is_later)[: limit - len(found)])
        return found

    def go_on(self, found: Sequence[_Read], limit: int, *, some_wait: bool) -> None:
        """Note what became of the page that `next` has returned."""
        last = found[-1] if some_wait and len(found) == limit else None
        self._after = None if last is None else (last.due_at, last.name)


def _read(due: QuerySet[CronJob, tuple[Any, ...]]) -> list[_Read]:
    return [_Read(*row) for row in raw_queries.read(due)]


_page: Final = in_memory_state.register(_Page())
last_query: Final = in_memory_state.register(LastQuery())


def due_condition(since: timedelta = timedelta(0)) -> str:
    """Return the SQL condition that a cron job has been due for `since`, or a run is held."""
    due = raw_queries.is_older(CronJob, "due_at", "due_at IS NOT NULL", since)
    held = raw_queries.condition(CronRun, f"phase = '{CronRunPhase.HELD.value}'")
    return f"({due} OR {held})"


def fire_if_due(since: timedelta = timedelta(0)) -> int:
    """Enqueue the jobs of due cron jobs, if one has been due for `since`. Return how many.

    Each FETCH over HTTP calls this as well, and there may be very many: all of them together query
    once in an interval.
    """
    if not last_query.repeat(INTERVAL):
        return 0
    if not raw_queries.holds(due_condition(since)):
        return 0
    fired = fire_due()
    if fired:
        last_query.reset()  # There may be more.
    return fired


def fire_due(limit: int = BATCH) -> int:
    """Enqueue the jobs of cron jobs that are due, and release jobs that waited for a run to end.

    Return how many.
    """
    found = _page.next(limit)
    fired = 0
    if found:
        # Many cron jobs may have the same schedule.
        evaluate = cache(schedule.passed)
        fired, waiting = _fire({row.name: _evaluate(row, evaluate) for row in found}, found[0].now)
        _page.go_on(found, limit, some_wait=waiting > 0)
    return fired + release()


def _evaluate(row: _Read, evaluate: Callable[..., Passed]) -> _Due:
    try:
        is_skipped = row.due_at != row.next_run_at
        passed = evaluate(row.expression, row.timezone, row.due_at, row.now, is_skipped=is_skipped)
    except CronExpressionError as error:
        # It was valid when it was registered: the timezone database has changed since.
        logger.error("The cron job %s cannot be evaluated any more: %s", row.name, error)
        return _Due(row, Passed(), error=str(error))
    return _Due(row, passed)


@database.write_transaction
def _fire(due: dict[str, _Due], now: datetime) -> tuple[int, int]:
    """Enqueue what is due. Return how many cron jobs were moved on, and how many have to wait."""
    rows = cron_jobs.lock_as_read({name: each.read.due_at for name, each in due.items()})
    if not rows:
        return 0, 0
    rows.sort(key=lambda row: (due[row.name].read.due_at, row.name))
    runs = enqueue(
        [
            DueRun(cron_job=row, scheduled_at=fires_at)
            for row in rows
            if due[row.name].is_of(row) and (fires_at := due[row.name].passed.fires_at) is not None
        ],
        wait=False,
    )
    enqueued = {run.occurrence.cron_job.name for run in runs if isinstance(run.result, EnqueuedJob)}
    waiting = {run.occurrence.cron_job.name for run in runs if run.result is None}
    # A cron job may have been registered again, with another schedule, since it was read.
    waiting.update(row.name for row in rows if not due[row.name].is_of(row))
    # The next tick tries the waiting ones again.
    moved = [row for row in rows if row.name not in waiting]
    for row in moved:
        passed = due[row.name].passed
        row.due_at, row.next_run_at = passed.next.due_at, passed.next.next_run_at
        row.missed_count += passed.missed
    publish_all(
        # A list, because making it logs missed occurrences, even if nothing wants the events.
        [
            event
            for row in moved
            for event in _of_passed(row, due[row.name], is_enqueued=row.name in enqueued)
        ]
    )
    cron_jobs.store(moved, record(runs, now))
    return len(moved), len(waiting)


def _of_passed(row: CronJob, due: _Due, *, is_enqueued: bool) -> Sequence[NewEvent]:
    """Return the events of the occurrences that passed without a job."""
    passed = due.passed
    if not (passed.gaps or passed.missed or due.error):
        return ()
    source = event_source(row)
    events = [source.skipped(SkipReason.DST, scheduled_at=at) for at in passed.gaps]
    if passed.missed_from is not None:
        number = f"{passed.missed} or more" if passed.is_cut else str(passed.missed)
        logger.warning(
            "The cron job %s was not evaluated in time: %s occurrences since %s were missed%s.",
            row.name,
            number,
            passed.missed_from,
            ", and one job was enqueued" if is_enqueued else "",
        )
        events.append(
            source.skipped(SkipReason.MISSED, scheduled_at=passed.missed_from, count=passed.missed)
        )
    if due.error:
        events.append(
            source.skipped(SkipReason.REJECTED, scheduled_at=due.read.due_at, message=due.error)
        )
    return events
