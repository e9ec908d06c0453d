"""Pauses between two tries while the database is away."""

import random

FIRST = 0.2
#: The longest pause lets work go on within a few seconds when the database is back.
LONGEST = 3.0


class Backoff:
    """The pauses of one thread: they double, with jitter, and begin anew after a success.

    All threads of all workers lose the database at once. Without jitter they would return together,
    to a server that has just started or has no connection left.
    """

    def __init__(self) -> None:
        self._next = FIRST

    def pause(self) -> float:
        """Return how many seconds to wait after a failure."""
        longest, self._next = self._next, min(self._next * 2, LONGEST)
        return random.uniform(longest / 2, longest)

    def reset(self) -> None:
        self._next = FIRST
