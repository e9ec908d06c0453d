"""What happened lately, from the rollups: sums and means by queue."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import Sum
from django.db.models.functions import Now, TruncDay

from django_ojs.models import Rollup
from django_ojs.storage.figures.rollups import BUCKETS


@dataclass(kw_only=True, slots=True)
class Recent:
    """What happened to the jobs of a queue in some time; see `mean` for the histograms."""

    completed: int = 0
    failed: int = 0
    waited: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    ran: list[int] = field(default_factory=lambda: [0] * BUCKETS)


def by_queue(since: timedelta, queues: Collection[str] | None = None) -> dict[str, Recent]:
    """Return what happened in this time, for these queues or all that had something.

    Processes write every ten seconds, so the latest of it may be missing.
    """
    rows = Rollup.primary.filter(minute__gt=Now() - since)
    if queues is not None:
        rows = rows.filter(queue__in=queues)
    found: dict[str, Recent] = defaultdict(Recent)
    for queue, completed, failed, waited, ran in rows.values_list(
        "queue", "completed", "failed", "waited", "ran"
    ):
        recent = found[queue]
        recent.completed += completed
        recent.failed += failed
        recent.waited = [a + b for a, b in zip(recent.waited, waited, strict=True)]
        recent.ran = [a + b for a, b in zip(recent.ran, ran, strict=True)]
    return dict(found)


def today(queue: str) -> tuple[int, int]:
    """Return how many jobs of a queue were completed and how often one failed, since 0:00 UTC."""
    rows = Rollup.primary.filter(minute__gte=TruncDay(Now()), queue=queue)
    sums = rows.aggregate(completed=Sum("completed"), failed=Sum("failed"))
    return sums["completed"] or 0, sums["failed"] or 0


def mean(histogram: list[int]) -> float | None:
    """Return the mean in milliseconds of what a histogram counts; None when that is nothing.

    A bucket is a factor of two wide and counted as its middle, so the mean may be off by a third.
    """
    total = sum(histogram)
    if not total:
        return None
    # The n-th bucket holds 2**(n-1) to 2**n ms, and the first what took less than one.
    middles = [0.5 if index == 0 else 0.75 * 2.0**index for index in range(len(histogram))]
    return sum(n * middle for n, middle in zip(histogram, middles, strict=True)) / total


__all__ = ["Recent", "by_queue", "mean", "today"]
