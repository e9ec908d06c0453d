"""A circuit breaker with exponential backoff (ojs-backpressure §8.1, §8.2)."""

import random
import time
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Final

from django_ojs.extensions.outbox import storage as outbox
from django_ojs.spec.retry_policy import RetryPolicy

#: Consecutive failures that open the breaker, and seconds until it lets a probe through.
THRESHOLD: Final = 5
COOLDOWN: Final = 10.0
#: 1, 2, 4, 8 seconds, at most the cooldown, each with a jitter of 50 %.
BACKOFF: Final = RetryPolicy(
    max_attempts=1, initial_interval=timedelta(seconds=1), max_interval=timedelta(seconds=COOLDOWN)
)


class BreakerState(StrEnum):
    """Closed: requests are sent. Open: no request is sent. Half-open: one probe is sent."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Counts consecutive failures, and derives how long to wait.

    While it is closed the waits grow exponentially; when open it lets a probe through after the
    cooldown. A wait is at least the server's `Retry-After`, but at most an hour.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        random_: Callable[[], float] = random.random,
    ) -> None:
        self.failures = 0
        self._clock = clock
        self._random_ = random_
        #: The time, by the clock, before which nothing may be sent.
        self.retry_at = 0.0

    @property
    def state(self) -> BreakerState:
        """The state now."""
        if self.failures < THRESHOLD:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.wait > 0 else BreakerState.HALF_OPEN

    @property
    def wait(self) -> float:
        """Seconds until a request may be sent; 0 for at once."""
        return max(0.0, self.retry_at - self._clock())

    def succeeded(self) -> None:
        """Note a response that accepted or rejected jobs: the server works."""
        self.failures, self.retry_at = 0, 0.0

    def failed(self, retry_after: float | None = None) -> timedelta:
        """Note a failure. Return how long to wait."""
        self.failures += 1
        if self.failures >= THRESHOLD:
            wait = timedelta(seconds=COOLDOWN)
        else:
            wait = BACKOFF.delay(self.failures, self._random_)
        wait = _at_least(retry_after, wait)
        self.retry_at = self._clock() + wait.total_seconds()
        return wait


def queue_wait(failures: int, retry_after: float | None) -> timedelta:
    """Return how long the jobs of one queue wait after this many failures."""
    return _at_least(retry_after, BACKOFF.delay(failures, random.random))


def _at_least(retry_after: float | None, wait: timedelta) -> timedelta:
    return min(max(wait, timedelta(seconds=retry_after or 0.0)), outbox.LONGEST_WAIT)
