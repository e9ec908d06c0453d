"""Queries of the rollups: sums of the last minutes by queue and by type, and means."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Aggregate, F, JSONField, Max, Q, QuerySet, Sum
from django.db.models.functions import Now, TruncDay
from django.utils import timezone

from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollups import BUCKETS
from django_ojs.spec.times import elapsed

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeFigures:
    """The numbers of completed and failed runs of a type in a queue."""

    type: str
    queue: str
    failed: int
    completed: int
    last: datetime

    @property
    def share(self) -> float:
        """The part of the runs that failed."""
        return self.failed / max(1, self.failed + self.completed)


def failing(minutes: int = 60, limit: int = 10) -> list[TypeFigures]:
    """Return the types whose runs failed most often, by queue.

    Runs that were lost with their worker do not count as failures.
    """
    start = minute_of(timezone.now()) - MINUTE * (minutes - 1)
    found = _by_type(
        Rollup.primary.filter(minute__gte=start),
        last=Max("minute", filter=Q(failed__gt=F("lost"))),
    )
    return _figures(found.filter(broke__gt=0).order_by("-broke", "type", "queue")[:limit])


def completed_since(
    moments: Mapping[tuple[str, str], datetime],
) -> dict[tuple[str, str], int]:
    """Return how many runs completed since these moments, by queue and type ("" is any type).

    Only whole minutes count, because some runs in the minute of a moment may have been before it.
    """
    first = minute_of(min(moments.values())) + MINUTE
    rows = Rollup.primary.filter(minute__gte=first, queue__in={queue for queue, _ in moments})
    found = dict.fromkeys(moments, 0)
    for queue, type, minute, number in (
        rows.values_list("queue", "type", "minute").annotate(Sum("completed")).order_by()
    ):
        for key in ((queue, type), (queue, "")):
            if key in moments and minute > moments[key]:
                found[key] += number
    return found


def queues_of(type: str, since: timedelta, limit: int) -> list[TypeFigures]:
    """Return the runs of a type by queue over this time, the queues with the most runs first."""
    found = _by_type(Rollup.primary.filter(type=type, minute__gt=Now() - since), last=Max("minute"))
    runs = Sum(F("failed") + F("completed"))
    return _figures(found.annotate(runs=runs).order_by("-runs", "queue")[:limit])


def _by_type(rows: QuerySet[Rollup], *, last: Max) -> QuerySet[Any]:
    """Return the numbers of failed runs that were not lost, and of completed runs."""
    broke = Sum(F("failed") - F("lost"))
    return rows.values("type", "queue").annotate(broke=broke, done=Sum("completed"), last=last)


def _figures(rows: QuerySet[Any]) -> list[TypeFigures]:
    return [
        TypeFigures(
            type=row["type"],
            queue=row["queue"],
            failed=row["broke"],
            completed=row["done"],
            last=row["last"],
        )
        for row in rows
    ]


@dataclass(kw_only=True, slots=True)
class RecentTotals:
    """The sums of a queue over some time; see `mean` for the histograms."""

    completed: int = 0
    failed: int = 0
    waited: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    ran: list[int] = field(default_factory=lambda: [0] * BUCKETS)


def recent_by_queue(
    since: timedelta, queues: Collection[str] | None = None
) -> dict[str, RecentTotals]:
    """Return the sums over this time, of these queues or of all with figures.

    Processes write every ten seconds, so the latest figures may be missing.
    """
    rows = Rollup.primary.filter(minute__gt=Now() - since)
    if queues is not None:
        rows = rows.filter(queue__in=queues)
    found: dict[str, RecentTotals] = defaultdict(RecentTotals)
    for queue, completed, failed, waited, ran in rows.values_list(
        "queue", "completed", "failed", "waited", "ran"
    ):
        recent = found[queue]
        recent.completed += completed
        recent.failed += failed
        recent.waited = [a + b for a, b in zip(recent.waited, waited, strict=True)]
        recent.ran = [a + b for a, b in zip(recent.ran, ran, strict=True)]
    return dict(found)


@dataclass(kw_only=True, slots=True)
class LastMinute:
    """The runs of a queue that ended within the last minute, and how long their jobs waited."""

    runs: float = 0.0
    waited: list[float] = field(default_factory=lambda: [0.0] * BUCKETS)


def last_minute_by_queue(queues: Collection[str] | None = None) -> dict[str, LastMinute]:
    """Return the runs of the last sixty seconds, of these queues or of all with figures.

    The minute before the current one counts in part: by its share that is within the sixty seconds.
    """
    now = timezone.now()
    current = minute_of(now)
    rows = Rollup.primary.filter(minute__gte=current - MINUTE, minute__lte=current)
    if queues is not None:
        rows = rows.filter(queue__in=queues)
    found: dict[str, LastMinute] = defaultdict(LastMinute)
    for minute, queue, completed, failed, waited in rows.values_list(
        "minute", "queue", "completed", "failed", "waited"
    ):
        part = 1.0 if minute == current else 1 - elapsed(current, now) / MINUTE
        figures = found[queue]
        figures.runs += part * (completed + failed)
        figures.waited = [a + part * b for a, b in zip(figures.waited, waited, strict=True)]
    return {queue: figures for queue, figures in found.items() if figures.runs}


def recent(since: timedelta, queues: Collection[str] | None = None) -> RecentTotals:
    """Return the sums over this time, of these queues or of all together; see `recent_by_queue`."""
    rows = Rollup.primary.filter(minute__gt=Now() - since)
    if queues is not None:
        rows = rows.filter(queue__in=queues)
    found = rows.aggregate(
        completed=Sum("completed"),
        failed=Sum("failed"),
        waited=BucketSums("waited"),
        ran=BucketSums("ran"),
    )
    return RecentTotals(
        completed=found["completed"] or 0,
        failed=found["failed"] or 0,
        waited=found["waited"],
        ran=found["ran"],
    )


class _Histogram(JSONField):
    def from_db_value(self, value: Any, expression: Any, connection: Any) -> list[int]:
        """Return a number for each bucket, because the sum of no rows is NULL."""
        found: Any = super().from_db_value(value, expression, connection)
        return [int(number or 0) for number in found]


class BucketSums(Aggregate):
    """The sum of each bucket of a histogram, as a list.

    It is one expression, because Django would take longer for 24 of them than the sums take.
    """

    output_field = _Histogram()

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        return self._sums(compiler, "JSON_ARRAY", "SUM(JSON_EXTRACT({}, '$[{}]'))")

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Use the JSON functions of PostgreSQL."""
        return self._sums(compiler, "JSONB_BUILD_ARRAY", "SUM(({} ->> {})::bigint)")

    def _sums(self, compiler: Any, function: str, bucket: str) -> Any:
        column, params = compiler.compile(self.source_expressions[0])
        sums = ", ".join(bucket.format(column, index) for index in range(BUCKETS))
        return f"{function}({sums})", params


def today(queue: str) -> tuple[int, int]:
    """Return how many runs of a queue's jobs completed and failed since 0:00 UTC."""
    rows = Rollup.primary.filter(minute__gte=TruncDay(Now(), tzinfo=UTC), queue=queue)
    found = rows.aggregate(completed=Sum("completed"), failed=Sum("failed"))
    return found["completed"] or 0, found["failed"] or 0


def types_lately(limit: int = 200) -> set[str]:
    """Return types of the jobs to which something happened in the last hour."""
    recent = Rollup.primary.filter(minute__gt=Now() - timedelta(hours=1)).order_by()
    return {*recent.values_list("type", flat=True).distinct()[:limit]}


def mean(histogram: Sequence[float]) -> float | None:
    """Return the mean of a histogram in milliseconds, or None if it is empty.

    A bucket is a factor of two wide and counted as its middle, so the mean may be off by a third.
    """
    total = sum(histogram)
    if not total:
        return None
    # The n-th bucket holds 2**(n-1) to 2**n ms, and the first one less than 1 ms.
    middles = [0.5 if index == 0 else 0.75 * 2.0**index for index in range(len(histogram))]
    return sum(n * middle for n, middle in zip(histogram, middles, strict=True)) / total


def minute_of(moment: datetime) -> datetime:
    """Return when the minute of a moment began."""
    return moment.replace(second=0, microsecond=0)
