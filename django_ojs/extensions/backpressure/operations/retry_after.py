"""When to try again after a queue was full: the `Retry-After` of a rejection."""

import time
from datetime import timedelta
from math import ceil
from typing import Final

from django_ojs.extensions.statistics import rollup_queries
from django_ojs.spec.errors import RETRY_AFTER
from django_ojs.storage import in_memory_state

#: Seconds for which a rate is used again, because there may be thousands of rejections.
_LIFETIME: Final = 1.0
_LONGEST: Final = 60


class CompletionRates:
    """How fast the workers complete the jobs of each queue."""

    def __init__(self) -> None:
        #: For each queue: when the rate was read, and how many jobs are completed in a second.
        self._read: dict[str, tuple[float, float]] = {}

    def retry_after(self, queue: str, jobs: int = 1) -> int:
        """Return about how many seconds the workers take to complete this number of jobs."""
        now = time.monotonic()
        read_at, rate = self._read.get(queue, (0.0, 0.0))
        if now - read_at > _LIFETIME:
            done = rollup_queries.recent_by_queue(timedelta(minutes=2), [queue]).get(queue)
            rate = done.completed / 120 if done is not None else 0.0
            self._read[queue] = now, rate
        return min(_LONGEST, max(1, ceil(jobs / rate))) if rate else RETRY_AFTER

    def reset(self) -> None:
        """Read the rates again."""
        self._read.clear()


rates: Final = in_memory_state.register(CompletionRates())
