"""What is known of a job type: its runs over an hour, a day and a week, and its latest errors.

The figures come from the rollups, and the errors from a bounded range of the latest runs: no query
searches the jobs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import OuterRef, Subquery, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Left
from django.utils import timezone

from django_ojs.extensions.statistics import rollup_queries, rollups
from django_ojs.extensions.statistics.history import Point, history
from django_ojs.extensions.statistics.rollup_queries import TypeFigures
from django_ojs.extensions.statistics.rollups import BUCKETS
from django_ojs.models import Job
from django_ojs.reports import ended_workers
from django_ojs.spec import failure

WEEK: Final = timedelta(days=7)
_HOURS_OF_A_DAY: Final = 24
MAX_QUEUES: Final = 20
#: The most unsuccessful runs that are read, and the most groups of equal ones.
MAX_RUNS: Final = 500
MAX_ERRORS: Final = 20


Percentiles = tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Runs:
    """The runs of a period. Durations are of the jobs that completed, in seconds, p50 and p95."""

    completed: int
    failed: int
    #: Failed runs that were lost with their worker, which are not failures of the type.
    lost: int
    waited: Percentiles
    ran: Percentiles

    @property
    def total(self) -> int:
        """How many runs ended."""
        return self.completed + self.failed

    @property
    def failures(self) -> int:
        """The failed runs that count, without the lost ones."""
        return self.failed - self.lost

    @property
    def failure_rate(self) -> float | None:
        """The part of the runs that failed; None without runs."""
        counted = self.total - self.lost
        return self.failures / counted if counted > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedRuns:
    """Unsuccessful runs with one outcome and error. `job` and the rest describe the latest run.

    `message` is the form of their messages (see `message_form`), "" where these were not compared.
    """

    outcome: str
    error_type: str
    message: str
    number: int
    first: datetime
    last: datetime
    job: UUID
    attempt: int
    worker_id: str | None


def last_hour(type: str) -> list[Point]:
    """Return the figures of each minute of the last hour."""
    return history("1m", type=type)


def last_week(type: str) -> list[Point]:
    """Return the figures of each hour of the last week."""
    return history("1h", since=timezone.now() - WEEK, type=type)


def last_day(week: Sequence[Point]) -> Sequence[Point]:
    """Return the points of the last day: of 23 past hours, and of the current hour."""
    return week[-_HOURS_OF_A_DAY:]


def runs(points: Iterable[Point]) -> Runs:
    """Return the sums of these points."""
    points = list(points)
    return Runs(
        completed=sum(point.completed for point in points),
        failed=sum(point.failed for point in points),
        lost=sum(point.lost for point in points),
        waited=_percentiles(point.waited for point in points),
        ran=_percentiles(point.ran for point in points),
    )


def queues(type: str) -> list[TypeFigures]:
    """Return the queues that had jobs of a type in the last week, those with most runs first."""
    return rollup_queries.queues_of(type, WEEK, MAX_QUEUES)


def latest_errors(type: str, *, by_message: bool) -> list[FailedRuns]:
    """Return the latest unsuccessful runs of a type, grouped by error, the latest first.

    They are among the latest 10,000 of all types, and 500 at most are read. With `by_message`, they
    are grouped by message as well; this is for a caller who may see the messages.
    """
    message = (
        Left(KT("error__message"), failure.MAX_FORM_CHARACTERS + 1) if by_message else Value("")
    )
    latest = (
        ended_workers.latest_runs()
        # A join is not used, because for so many rows the planner would read all jobs of the type.
        .annotate(type=Subquery(Job.primary.filter(pk=OuterRef("job_id")).values("type")))
        .filter(type=type)
        .order_by("-pk")
        .annotate(error_type=KT("error__type"), message=message)
        .values_list(
            *("outcome", "error_type", "message", "finished_at", "job_id", "attempt", "worker_id")
        )[:MAX_RUNS]
    )
    found: dict[tuple[str, str, str], FailedRuns] = {}
    for outcome, error_type, text, finished_at, job, attempt, worker_id in latest:
        key = outcome, error_type or "", failure.message_form(text) if by_message else ""
        known = found.get(key)
        if known is not None:
            same = known.message if known.message == text else key[2]
            found[key] = replace(known, number=known.number + 1, first=finished_at, message=same)
        else:
            found[key] = FailedRuns(
                outcome=outcome,
                error_type=key[1],
                message=text if failure.is_form(text) else key[2],
                number=1,
                first=finished_at,
                last=finished_at,
                job=job,
                attempt=attempt,
                worker_id=worker_id,
            )
    return list(found.values())[:MAX_ERRORS]


def _percentiles(histograms: Iterable[Sequence[int]]) -> Percentiles:
    nothing = [0] * BUCKETS
    total = [sum(column) for column in zip(nothing, *histograms, strict=True)]
    return rollups.percentile(total, 0.5), rollups.percentile(total, 0.95)
