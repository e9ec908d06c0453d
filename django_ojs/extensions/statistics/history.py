"""The history of the figures (ojs-admin-api §10.2), from the rollups."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import TruncDay, TruncHour
from django.utils import timezone

from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollup_queries import BucketSums
from django_ojs.extensions.statistics.rollups import BUCKETS
from django_ojs.spec.errors import InvalidRequest

Period = Literal["1m", "5m", "1h", "1d"]
PERIODS: dict[Period, timedelta] = {
    "1m": timedelta(minutes=1),
    "5m": timedelta(minutes=5),
    "1h": timedelta(hours=1),
    "1d": timedelta(days=1),
}
#: The most points in one response: two days of minutes, or four months of hours.
MAX_POINTS = 3000

_SUMS = ("enqueued", "completed", "failed", "discarded", "lost", "rejected", "dropped")


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The figures of one period, which begins at `timestamp`.

    `processed` counts the runs that ended with a result or an error, `failed` only errors.
    `rejected` and `dropped` are the jobs that a full queue rejected, and dropped for new ones.
    `waited` and `ran` are histograms of the completed jobs; see `stats.percentiles`.
    """

    timestamp: datetime
    enqueued: int
    completed: int
    failed: int
    discarded: int
    #: Failed runs that were lost with their worker.
    lost: int
    rejected: int
    dropped: int
    waited: list[int]
    ran: list[int]

    @property
    def processed(self) -> int:
        """How many runs ended."""
        return self.completed + self.failed


def history(
    period: Period = "5m",
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    queue: str | None = None,
    type: str | None = None,
    within: Collection[str] | None = None,
) -> list[Point]:
    """Return one point for each period, oldest first, periods without activity included.

    The default is the last hour of all queues and types. The first period is the one that contains
    `since`. `within` are the queues that the caller may use. Figures of other processes may be
    missing for the last ten seconds; beyond two days, the figures of an hour are in its first
    period. Raises InvalidRequest for an empty range, or more than 3,000 periods.
    """
    width = PERIODS[period]
    end = until if until is not None else timezone.now()
    start = _floor(since if since is not None else end - timedelta(hours=1), width)
    if start >= end:
        raise InvalidRequest("since must be before until.", details={"field": "since"})
    if (end - start) / width > MAX_POINTS:
        raise InvalidRequest(
            f"since and until must be at most {MAX_POINTS} periods apart.",
            details={"field": "since", "max_points": MAX_POINTS},
        )
    # Write this process's own figures if they are due: it may be a process that seldom does.
    rollups.flush_if_due()
    which = Q(minute__gte=start, minute__lt=end)
    if queue is not None:
        which &= Q(queue=queue)
    if type is not None:
        which &= Q(type=type)
    if within is not None:
        which &= Q(queue__in=sorted(within))
    found = {start + width * n: _Sums() for n in range(-(-(end - start) // width))}
    for row in _summed(Rollup.primary.filter(which), period):
        found[_floor(row["period"], width)].add(row)
    return [each.point(moment) for moment, each in found.items()]


def _floor(moment: datetime, width: timedelta) -> datetime:
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day + (moment - day) // width * width


def _summed(rows: QuerySet[Rollup], period: Period) -> Iterator[dict[str, Any]]:
    # The database sums up the rows, by minute or longer periods, and histograms bucket by bucket.
    moment: Any = F("minute")
    if period == "1h":
        moment = TruncHour("minute", tzinfo=UTC)
    elif period == "1d":
        moment = TruncDay("minute", tzinfo=UTC)
    totals: dict[str, Any] = {f"sum_{name}": Sum(name) for name in _SUMS}
    totals |= {f"sum_{name}": BucketSums(name) for name in ("waited", "ran")}
    summed = rows.annotate(period=moment).values("period").annotate(**totals)
    return cast("Iterator[dict[str, Any]]", iter(summed.order_by("period")))


class _Sums:
    def __init__(self) -> None:
        self._counts = dict.fromkeys(_SUMS, 0)
        self._waited = [0] * BUCKETS
        self._ran = [0] * BUCKETS

    def add(self, row: dict[str, Any]) -> None:
        for name in _SUMS:
            self._counts[name] += row[f"sum_{name}"] or 0
        self._waited = _added(self._waited, row["sum_waited"])
        self._ran = _added(self._ran, row["sum_ran"])

    def point(self, moment: datetime) -> Point:
        return Point(timestamp=moment, waited=self._waited, ran=self._ran, **self._counts)


def _added(some: list[int], others: list[int]) -> list[int]:
    return [one + other for one, other in zip(some, others, strict=True)]
