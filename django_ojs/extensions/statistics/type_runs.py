"""The types whose jobs ran in the last hour, from the rollups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Q, Sum
from django.utils import timezone

from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.statistics.rollup_queries import MINUTE, BucketSums, mean, minute_of
from django_ojs.extensions.statistics.rollups import percentile
from django_ojs.reports.queue_overview import RATE_MINUTES


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeRuns:
    """The runs of a type that ended in the last hour, and those of the last five minutes.

    `ran` is the histogram of the running times of its completed jobs.
    """

    type: str
    completed: int
    failed: int
    lately_completed: int
    lately_failed: int
    ran: Sequence[int]

    @property
    def runs(self) -> int:
        """How many ended in the hour."""
        return self.completed + self.failed

    @property
    def lately(self) -> int:
        """How many ended in the last five minutes."""
        return self.lately_completed + self.lately_failed

    @property
    def p50(self) -> float | None:
        """The seconds that half of its completed jobs ran at most; None if no time is known."""
        return percentile(self.ran, 0.5)

    @property
    def p95(self) -> float | None:
        """The seconds that 95 % of its completed jobs ran at most; None if no time is known."""
        return percentile(self.ran, 0.95)

    @property
    def total(self) -> float | None:
        """About how many seconds its completed jobs ran together; None if no time is known."""
        average = mean(self.ran)
        return None if average is None else average / 1000 * sum(self.ran)


def lately(limit: int) -> list[TypeRuns]:
    """Return the types that ran in the last hour: first those with the most failures lately.

    Then those that failed most often in the hour, then those that took most time. Runs that were
    lost with their worker do not count as failures.
    """
    start = minute_of(timezone.now())
    recent = Q(minute__gte=start - MINUTE * (RATE_MINUTES - 1))
    failures = F("failed") - F("lost")
    rows: Iterable[Any] = (
        Rollup.primary.filter(minute__gte=start - MINUTE * 59)
        .values("type")
        .annotate(
            done=Sum("completed"),
            broke=Sum(failures),
            lately_done=Sum("completed", filter=recent),
            lately_broke=Sum(failures, filter=recent),
            took=BucketSums("ran"),
        )
        .order_by()
    )
    found = [
        TypeRuns(
            type=row["type"],
            completed=row["done"],
            failed=row["broke"],
            lately_completed=row["lately_done"] or 0,
            lately_failed=row["lately_broke"] or 0,
            ran=row["took"],
        )
        for row in rows
        if row["done"] or row["broke"]
    ]
    found.sort(
        key=lambda each: (-each.lately_failed, -each.failed, -(each.total or 0.0), each.type)
    )
    return found[:limit]
