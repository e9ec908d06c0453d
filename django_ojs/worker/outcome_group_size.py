"""How many outcomes are stored together."""

import time
from typing import Final

#: A group that was stopped is tried again in this many parts. Each try costs the whole timeout of
#: the server, and three tries find the one outcome of 500 whose row another transaction has locked.
PARTS: Final = 8

#: How long groups stay small, as a multiple of the time that the stopped one took: a larger group
#: that is stopped again costs a twentieth of the thread's time.
FACTOR: Final = 20


class GroupSize:
    """The most outcomes of a group: fewer for a time after the server stopped a statement."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._until = 0.0

    def within(self, most: int) -> int:
        """Return how many outcomes may be stored together now, at most `most`."""
        if self._most is None:
            return most
        if time.monotonic() >= self._until:
            self._most = None
            return most
        return min(self._most, most)

    def reduce(self, size: int, seconds: float) -> None:
        """Note that a statement of `size` outcomes was stopped after `seconds`."""
        self._most = max(1, size // PARTS)
        self._until = time.monotonic() + seconds * FACTOR

    def lift(self) -> None:
        """Note that one outcome was the cause, which is not stored with others any more."""
        self._most = None
