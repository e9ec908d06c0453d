"""The figures of a queue (http-binding §11.2), without counting jobs."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from django_ojs.extensions.statistics import rollup_queries
from django_ojs.operations.queues.status import QueueStatus, get
from django_ojs.storage.figures.oldest_available import oldest

HOUR = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistics:
    """A queue, and its figures of the last hour.

    Means come from histograms by powers of two: they are approximate ("about 200 ms", not "213").
    They are None if no job was completed.
    """

    status: QueueStatus
    completed_last_hour: int
    failed_last_hour: int
    avg_duration_ms: float | None
    avg_wait_ms: float | None
    throughput_per_second: float
    oldest_available_at: datetime | None
    computed_at: datetime


def statistics(name: str) -> Statistics:
    """Return the figures of a queue. Raises NotFound."""
    status = get(name)
    hour = rollup_queries.recent(HOUR, [name])
    return Statistics(
        status=status,
        completed_last_hour=hour.completed,
        failed_last_hour=hour.failed,
        avg_duration_ms=rollup_queries.mean(hour.ran),
        avg_wait_ms=rollup_queries.mean(hour.waited),
        throughput_per_second=hour.completed / HOUR.total_seconds(),
        oldest_available_at=oldest([name]).get(name),
        computed_at=timezone.now(),
    )
