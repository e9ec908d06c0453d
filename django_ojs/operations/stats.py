"""How many jobs there are: by queue and state, and a queue's depth. Nothing here reads the jobs."""

from collections.abc import Iterable

from django_ojs.conf import settings
from django_ojs.storage import counts, rollups
from django_ojs.storage.counts import ByState


def by_queue(queues: Iterable[str] | None = None) -> dict[str, ByState]:
    """Return the number of jobs by state, for these queues or all; what is 0 is left out."""
    return counts.by_queue(queues)


def depth(queue: str) -> int:
    """Return how many jobs wait in a queue: available, scheduled or retryable (backpressure §3)."""
    return counts.depth(queue)


class CountKeeper:
    """Keeps the counts short: two maintenance steps, the second when the first did something."""

    def __init__(self) -> None:
        self._folded = 0

    def fold(self) -> int:
        """Fold what changed into the counts. Return how many changes there were."""
        folded = counts.fold()
        self._folded += folded
        return folded

    def tidy(self) -> int:
        """Give back the space of what was folded."""
        if self._folded:
            counts.tidy()
        self._folded = 0
        return 0


def fold_rollups() -> int:
    """Fold rollups of minutes that are over, and delete old ones. Return how many rows went."""
    return rollups.fold() + rollups.prune(settings().keep_rollups)


def flush_rollups() -> int:
    """Write what this process has added up. Every process does this for itself."""
    return rollups.flush()
