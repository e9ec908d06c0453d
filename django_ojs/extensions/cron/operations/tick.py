"""The tick: enqueue the jobs of cron jobs that are due (ojs-cron §7.3).

Any process may call it at any time. What decides is a compare-and-swap on `due_at`, in the
transaction that stores the job: of several schedulers, one moves a cron job on to its next
occurrence and enqueues its job, and one that dies has done neither.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast

from django.db.models import Q
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


@dataclass(frozen=True, slots=True)
class _Due:
    """A cron job as it was read, and what is due of it."""

    read: CronJob
    due_at: datetime
    passed: Passed
    error: str = ""

    def is_of(self, row: CronJob) -> bool:
        """Whether the schedule is still that from which this was computed."""
        return (row.expression, row.timezone) == (self.read.expression, self.read.timezone)


class _Page:
    """Which cron jobs the next tick of a process looks at: the earliest ones that are due.

    If a page is full and some of its cron jobs have to wait, the next page begins after them, and
    after the last page the first one. So the others get their turn even if very many wait.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._after: tuple[datetime, str] | None = None

    def next(self, limit: int) -> Sequence[CronJob]:
        due = (
            CronJob.primary.filter(due_at__lte=Now())
            .annotate(now=Now())
            .order_by("due_at", "name")
            .only("name", "expression", "timezone", "due_at", "next_run_at")
        )
        if self._after is None:
            return list(due[:limit])
        at, name = self._after
        is_later = Q(due_at__gt=at) | Q(due_at=at, name__gt=name)
        found = list(due.filter(is_later)[:limit])
        return [*found, *due.exclude(is_later)[: limit - len(found)]]

    def go_on(self, found: Sequence[CronJob], limit: int, *, some_wait: bool) -> None:
        """Note what became of the page that `next` has returned."""
        last = found[-1] if some_wait and len(found) == limit else None
        self._after = None if last is None else (cast("datetime", last.due_at), last.name)


_page: Final = in_memory_state.register(_Page())
last_query: Final = in_memory_state.register(LastQuery())


def due_condition(since: timedelta = timedelta(0)) -> str:
    """Return the SQL condition that a cron job has been due for `since`, or a run is held."""
    due = raw_queries.is_older(CronJob, "due_at", "due_at IS NOT NULL", since)
    held = raw_queries.condition(CronRun, f"phase = '{CronRunPhase.HELD.value}'")
    return f"({due} OR {held})"


def fire_if_due(since: timedelta = timedelta(0)) -> int:
    """Enqueue the jobs of cron jobs that have been due for `since`. Return how many.

    A FETCH over HTTP calls this as well, and there may be very many: all of them together query
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
        fired, waiting = _fire({row.name: _evaluate(row) for row in found})
        _page.go_on(found, limit, some_wait=waiting > 0)
    return fired + release()


def _evaluate(row: CronJob) -> _Due:
    # The query has returned only rows with a `due_at`.
    due_at, now = cast("datetime", row.due_at), cast("datetime", row.now)  # type: ignore[attr-defined]  # annotated
    try:
        is_skipped = due_at != row.next_run_at
        passed = schedule.passed(row.expression, row.timezone, due_at, now, is_skipped=is_skipped)
    except CronExpressionError as error:
        # It was checked when it was registered: the timezone database has changed since.
        logger.error("The cron job %s cannot be evaluated any more: %s", row.name, error)
        return _Due(row, due_at, Passed(), error=str(error))
    return _Due(row, due_at, passed)


@database.write_transaction
def _fire(due: dict[str, _Due]) -> tuple[int, int]:
    """Enqueue what is due. Return how many cron jobs were moved on, and how many have to wait."""
    rows = cron_jobs.lock_as_read({name: each.due_at for name, each in due.items()})
    if not rows:
        return 0, 0
    rows.sort(key=lambda row: (due[row.name].due_at, row.name))
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
    # One may have been registered again since it was read, with a schedule that has other times.
    waiting.update(row.name for row in rows if not due[row.name].is_of(row))
    # The next tick tries the waiting ones again.
    moved = [row for row in rows if row.name not in waiting]
    for row in moved:
        passed = due[row.name].passed
        row.due_at, row.next_run_at = passed.next.due_at, passed.next.next_run_at
        row.missed_count += passed.missed
    publish_all(
        event
        for row in moved
        for event in _of_passed(row, due[row.name], is_enqueued=row.name in enqueued)
    )
    now = rows[0].now  # type: ignore[attr-defined]  # annotated
    cron_jobs.store(moved, record(runs, now))
    return len(moved), len(waiting)


def _of_passed(row: CronJob, due: _Due, *, is_enqueued: bool) -> Sequence[NewEvent]:
    """Return the events of the occurrences that passed without a job."""
    source, passed = event_source(row), due.passed
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
            source.skipped(SkipReason.REJECTED, scheduled_at=due.due_at, message=due.error)
        )
    return events
