"""How many jobs there are: by queue and state, and a queue's depth. Nothing here reads the jobs."""

from collections.abc import Iterable

from django_ojs.storage import counts
from django_ojs.storage.counts import ByState


def by_queue(queues: Iterable[str] | None = None) -> dict[str, ByState]:
    """Return the number of jobs by state, for these queues or all; what is 0 is left out."""
    return counts.by_queue(queues)


def depth(queue: str) -> int:
    """Return how many jobs wait in a queue: available, scheduled or retryable (backpressure §3)."""
    return counts.depth(queue)


def fold() -> int:
    """Fold what changed into the counts, a maintenance step. Return how many changes there were."""
    return counts.fold()
