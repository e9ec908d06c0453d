"""When to send, and when to leave a server alone (ojs-backpressure §8.1, §8.2)."""

import random
import time
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Final

from django_ojs.spec.retry import RetryPolicy
from django_ojs.storage import outbox

#: Failures in a row that open it, and seconds until it lets one request through.
THRESHOLD: Final = 5
COOLDOWN: Final = 10.0
#: Nobody is made to wait longer than this by a server's word.
LONGEST_WAIT: Final = outbox.LONGEST_WAIT.total_seconds()

#: 1, 2, 4, 8 seconds and no more than the cooldown, half to one and a half of each.
BACKOFF: Final = RetryPolicy(
    max_attempts=1, initial_interval=timedelta(seconds=1), max_interval=timedelta(seconds=COOLDOWN)
)


class State(StrEnum):
    """A breaker's: requests flow; none does; one may show whether they can again."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Counts failures in a row, and says how long to wait.

    While it is closed the waits grow exponentially; once open it lets a probe through after the
    cooldown. A server's own `Retry-After` is never undercut.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.failures = 0
        self._clock = clock
        self._dice = dice
        self._until = 0.0

    @property
    def state(self) -> State:
        """Where it stands now."""
        if self.failures < THRESHOLD:
            return State.CLOSED
        return State.OPEN if self.wait > 0 else State.HALF_OPEN

    @property
    def wait(self) -> float:
        """Seconds until something may be sent; 0 for now."""
        return max(0.0, self._until - self._clock())

    def succeeded(self) -> None:
        """Note an answer that took jobs, or judged them: the server is well."""
        self.failures, self._until = 0, 0.0

    def failed(self, retry_after: float | None = None) -> timedelta:
        """Note a failure. Return how long to wait."""
        self.failures += 1
        if self.failures >= THRESHOLD:
            wait = COOLDOWN
        else:
            wait = BACKOFF.delay(self.failures, self._dice).total_seconds()
        wait = min(max(wait, retry_after or 0.0), LONGEST_WAIT)
        self._until = self._clock() + wait
        return timedelta(seconds=wait)
