"""The histories of all jobs (ojs-execution-history §7.4, §7.6): search them, and delete old ones.

Nothing is recorded for a history (see `execution_history`), so a search merges the rows of which
histories are made, each read newest first: jobs by their times, and unsuccessful attempts.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nlargest
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError
from django.db.models import F, Model, Q, QuerySet, Value
from django.db.models.functions import Now
from django.db.models.lookups import GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.access import audit_trail
from django_ojs.operations.jobs import execution_history
from django_ojs.operations.jobs.execution_history import RETURNED, HistoryEvent
from django_ojs.spec import json
from django_ojs.spec.errors import BackendTimeout
from django_ojs.spec.states import State
from django_ojs.spec.texts import Translatable as _
from django_ojs.storage import database
from django_ojs.storage.database import BATCH
from django_ojs.storage.dialects.expressions import Microseconds, OneOf

#: Seconds for each query of a page, and for all of them: the last one begins before these are over.
SECONDS: Final = 5.0
ALL_SECONDS: Final = 10.0
#: Events of a type are counted up to this.
COUNTED: Final = 10_000
#: Jobs whose histories one call deletes at most.
DELETED: Final = 10_000

#: Not loaded: values that can be megabytes each.
_LARGE: Final = ("args", "meta", "options", "result", "progress")
_MICROSECOND: Final = timedelta(microseconds=1)
#: Arguments that are in memory at a time, to be measured.
_ARGS_AT_ONCE: Final = 10

#: Where an event stands in a search: its time, job, run and step; the newest is first.
Position = tuple[datetime, UUID, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryFilter:
    """Events that meet all conditions. `start` is inclusive, `end` exclusive.

    `text` is a part of an error message or of the id of a worker, or a type of errors. `by_worker`:
    whether a worker triggered the event. `within` are the queues that the caller may use.
    """

    start: datetime | None = None
    end: datetime | None = None
    types: frozenset[str] = frozenset()
    queues: tuple[str, ...] = ()
    job_types: tuple[str, ...] = ()
    text: str | None = None
    by_worker: bool | None = None
    within: frozenset[str] | None = None

    def of_jobs(self, rows: QuerySet[Any], job: str = "") -> QuerySet[Any]:
        """Add the conditions on the job; `job` leads to it from the rows."""
        if self.within is not None:
            rows = rows.filter(Job.in_queues(sorted(self.within), job))
        if self.queues:
            rows = rows.filter(Job.in_queues(self.queues, job))
        if self.job_types:
            rows = rows.filter(**{f"{job}type__in": self.job_types})
        return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    """The rows that have events of one type, and the field with the time of these."""

    type: str
    time: str
    rows: Callable[[], QuerySet[Any]]
    events: Callable[[Any], Iterator[HistoryEvent]]
    #: The field with the worker that triggered the event, and that with an error.
    worker: str | None = None
    error: str | None = None
    #: How the rows lead to their job.
    job: str = ""

    def newest(self, which: HistoryFilter) -> QuerySet[Any] | None:
        """Return the rows whose events the filter wants, newest first; None: it wants none."""
        if which.types and self.type not in which.types:
            return None
        if which.by_worker is not None and which.by_worker is (self.worker is None):
            return None
        # PostgreSQL has rows without a time first, which would fill a page without an event.
        rows = which.of_jobs(self.rows(), self.job).filter(**{f"{self.time}__isnull": False})
        if which.by_worker:
            rows = rows.filter(**{f"{self.worker}__isnull": False})
        if which.text is not None:
            rows = self._with_text(rows, which.text)
        time = Microseconds(F(self.time))
        if which.start is not None:
            rows = rows.filter(GreaterThanOrEqual(time, Microseconds(Value(which.start))))
        if which.end is not None:
            rows = rows.filter(LessThan(time, Microseconds(Value(which.end))))
        deleted = f"{self.job}history_deleted_at"
        shown = Q(GreaterThan(time, Microseconds(F(deleted))))
        return rows.filter(Q(**{f"{deleted}__isnull": True}) | shown)

    def _with_text(self, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        found = Q()
        if self.worker is not None:
            found |= Q(**{f"{self.worker}__icontains": text})
        if self.error is not None:
            found |= Q(**{f"{self.error}__message__icontains": text})
            found |= Q(**{f"{self.error}__type": text})
        return rows.filter(found) if found else rows.none()

    def first(self, rows: QuerySet[Any], after: Position | None, limit: int) -> QuerySet[Any]:
        """Return the first rows that can have an event after a position."""
        key = f"{self.job}pk" if self.job else "pk"
        if after is not None:
            time, last = Microseconds(F(self.time)), Microseconds(Value(after[0]))
            rows = rows.filter(LessThanOrEqual(time, last))
            rows = rows.filter(Q(LessThan(time, last)) | Q(**{f"{key}__lte": after[1]}))
        # One more for the job of the position, and one to know whether there are more.
        return rows.order_by(f"-{self.time}", f"-{key}", "-run")[: limit + 2]


def _jobs(*states: State) -> QuerySet[Job]:
    found = Job.primary.defer(*_LARGE)
    return found.filter(state__in=states) if states else found


def _attempts(*outcomes: AttemptOutcome) -> QuerySet[Attempt]:
    large = [f"job__{name}" for name in (*_LARGE, "error")]
    found = Attempt.primary.select_related("job").defer(*large)
    return found.filter(outcome__in=outcomes) if outcomes else found


_FAILED: Final = tuple(
    each for each in AttemptOutcome if each not in RETURNED and each != AttemptOutcome.CANCELLED
)
_SOURCES: Final = (
    _Source(
        type="job.created", time="created_at", rows=_jobs, events=execution_history.of_creation
    ),
    _Source(
        type="job.attempt_started",
        time="started_at",
        # An unsuccessful run has an attempt.
        rows=lambda: _jobs(State.ACTIVE, State.COMPLETED),
        events=execution_history.of_latest_run,
        worker="worker_id",
    ),
    _Source(
        type="job.attempt_started",
        time="started_at",
        rows=_attempts,
        events=lambda each: execution_history.of_attempt(each.job, each),
        worker="worker_id",
        job="job__",
    ),
    _Source(
        type="job.attempt_completed",
        time="finished_at",
        rows=lambda: _jobs(State.COMPLETED).filter(dead_letter=False),
        events=execution_history.of_latest_run,
        worker="worker_id",
    ),
    *(
        _Source(
            type=type,
            time="finished_at",
            rows=lambda outcomes=outcomes: _attempts(*outcomes),  # type: ignore[misc]  # bound now
            events=lambda each: execution_history.of_attempt(each.job, each),
            worker="worker_id",
            error="error",
            job="job__",
        )
        for type, outcomes in (
            ("job.attempt_failed", _FAILED),
            ("job.state_changed", tuple(RETURNED)),
        )
    ),
    _Source(
        type="job.cancelled",
        time="finished_at",
        rows=lambda: _jobs(State.CANCELLED).filter(dead_letter=False),
        events=execution_history.of_end,
    ),
    # Each kind has a range of the index of its own.
    *(
        _Source(
            type="job.discarded",
            time="finished_at",
            rows=lambda dead=dead: _jobs(State.DISCARDED).filter(dead_letter=dead),  # type: ignore[misc]  # bound now
            events=execution_history.of_end,
            error="error",
        )
        for dead in (False, True)
    ),
)
TYPES: Final = frozenset(source.type for source in _SOURCES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The events of a page, and the number of all: of each type up to `COUNTED` are counted."""

    events: Sequence[tuple[Job, HistoryEvent]]
    end: Position | None
    total: int


#: The page of a filter that no event can match.
NOTHING: Final = Found(events=(), end=None, total=0)


def search(which: HistoryFilter, *, after: Position | None, limit: int) -> Found:
    """Return the events of a filter after a position, newest first. Raises BackendTimeout."""
    found: dict[Position, tuple[Job, HistoryEvent]] = {}
    total = 0
    dialect = database.dialect()
    until = time.monotonic() + ALL_SECONDS
    try:
        with dialect.query_timeout(database.connection(), SECONDS) as query:
            for source in _SOURCES:
                rows = source.newest(which)
                if rows is None:
                    continue
                if time.monotonic() >= until:
                    raise _too_slow()
                with query():
                    page = list(source.first(rows, after, limit))
                with query():
                    total += rows.order_by()[:COUNTED].count()
                found |= _positions(source, page)
    except DatabaseError as error:
        if not dialect.is_timeout_error(error):
            raise
        raise _too_slow() from None
    newest = nlargest(limit + 1, (each for each in found if after is None or each < after))
    events = [found[position] for position in newest[:limit]]
    return Found(
        events=_with_sizes(events),
        end=newest[limit - 1] if len(newest) > limit else None,
        total=total,
    )


def _too_slow() -> BackendTimeout:
    return BackendTimeout(
        _(
            "The search took too long. Name a start, an end or event_types: the ends of "
            "attempts and of jobs are found by an index, creations and starts are not."
        )
    )


def _positions(
    source: _Source, rows: Sequence[Model]
) -> Iterator[tuple[Position, tuple[Job, HistoryEvent]]]:
    for row in rows:
        job = row.job if isinstance(row, Attempt) else row
        assert isinstance(job, Job)
        for event in source.events(row):
            if event.type == source.type:
                yield (event.time, job.pk, event.run, event.step), (job, event)


def _with_sizes(
    events: Sequence[tuple[Job, HistoryEvent]],
) -> Sequence[tuple[Job, HistoryEvent]]:
    """Add the size of the arguments to the creations, as the history of the job has it."""
    created = {job.pk: event for job, event in events if event.type == "job.created"}
    args = Job.primary.filter(OneOf("pk", list(created))).values_list("pk", "args")
    for key, value in args.iterator(chunk_size=_ARGS_AT_ONCE) if created else ():
        created[key].data["args_size_bytes"] = len(json.dumps(value).encode())
    return events


@dataclass(frozen=True, kw_only=True, slots=True)
class Deleted:
    """What `delete_before` deleted. `end`: the job after which it goes on; None: it is done."""

    jobs: int
    events: int
    end: UUID | None


def delete_before(
    moment: datetime,
    *,
    queues: Collection[str] = (),
    within: Collection[str] | None = None,
    after: UUID | None = None,
) -> Deleted:
    """Delete the events before a moment, now at the latest, of jobs in these queues, or of all; not
    the jobs.

    The histories of `DELETED` jobs at most, in transactions of 500 jobs, so that it blocks no
    operation for long; locks of jobs are waited for. `after` is the end of an earlier call.
    """
    jobs = events = 0
    while jobs < DELETED:
        number, deleted, after = _delete_some(moment, queues, within, after)
        jobs, events = jobs + number, events + deleted
        if after is None:
            break
    audit_trail.record(
        "jobs.history_deleted",
        object_type="job",
        before=moment.isoformat(),
        queues=sorted(queues),
        jobs=jobs,
        events=events,
    )
    return Deleted(jobs=jobs, events=events, end=after)


@database.write_transaction
def _delete_some(
    moment: datetime,
    queues: Collection[str],
    within: Collection[str] | None,
    after: UUID | None,
) -> tuple[int, int, UUID | None]:
    rows = Job.primary.filter(created_at__lt=moment).defer(*_LARGE).order_by("pk")
    rows = rows.filter(Q(history_deleted_at__isnull=True) | Q(history_deleted_at__lt=moment))
    if after is not None:
        rows = rows.filter(pk__gt=after)
    if queues:
        rows = rows.filter(Job.in_queues(sorted(queues)))
    if within is not None:
        # As for the history of one job: who changes a dead letter may use both of its queues.
        names = sorted(within)
        original = Q(original_queue__isnull=True) | Q(original_queue__in=names)
        rows = rows.filter(original, queue__in=names)
    locked = rows.annotate(now=Now()).select_for_update(of=("self",), no_key=True)
    jobs = list(locked[:BATCH])
    if not jobs:
        return 0, 0, None
    keys = [job.pk for job in jobs]
    # Never later than now by the clock that the events have: what happens next would be hidden.
    moment = min(moment, jobs[0].now)
    last = moment - _MICROSECOND
    runs: defaultdict[UUID, list[Attempt]] = defaultdict(list)
    attempts = Attempt.primary.filter(OneOf("job_id", keys))
    for attempt in attempts.defer("error").order_by("id"):
        attempt.error = None
        runs[attempt.job_id].append(attempt)
    events = sum(
        event.time <= last
        for job in jobs
        for event in execution_history.events_of(job, runs[job.pk])
    )
    attempts.filter(LessThan(Microseconds(F("finished_at")), Microseconds(Value(moment)))).delete()
    Job.primary.filter(OneOf("pk", keys)).update(history_deleted_at=last)
    return len(jobs), events, keys[-1] if len(jobs) == BATCH else None
