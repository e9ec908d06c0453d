"""When to try again where a queue was full: the `Retry-After` of a rejection."""

import time
from datetime import timedelta
from math import ceil
from typing import Final

from django_ojs.extensions.statistics import rollup_queries
from django_ojs.spec.errors import RETRY_AFTER

#: Seconds for which a rate is used again, because there may be thousands of rejections.
_RATE_LIFETIME: Final = 1.0
_LONGEST: Final = 60

#: For each queue: when the rate was read, and how many jobs are completed in a second.
_rates: Final[dict[str, tuple[float, float]]] = {}


def seconds(queue: str, jobs: int = 1) -> int:
    """Return about how many seconds the workers take to complete this number of jobs."""
    now = time.monotonic()
    read_at, rate = _rates.get(queue, (0.0, 0.0))
    if now - read_at > _RATE_LIFETIME:
        done = rollup_queries.recent_by_queue(timedelta(minutes=2), [queue]).get(queue)
        rate = done.completed / 120 if done is not None else 0.0
        _rates[queue] = now, rate
    return min(_LONGEST, max(1, ceil(jobs / rate))) if rate else RETRY_AFTER


def forget() -> None:
    """Forget the rates; they are read again."""
    _rates.clear()
