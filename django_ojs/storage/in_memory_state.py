"""The state that a process keeps in memory about the database: caches, counters and throttles.

Each object registers itself where it is made, and `reset` returns all of them to the state of a new
process. Tests call it, so that no test begins with what another has read, counted or sent. Two
objects are not part of it: the registry of handlers, which importing `jobs.py` fills, and the
recorder of rejections, whose reset writes to the database and ends a thread.
"""

import time
from typing import Protocol, TypeVar


class Resettable(Protocol):
    """An object whose state can be dropped at any time, at the cost of building it again."""

    def reset(self) -> None:
        """Return to the state of a new process."""


R = TypeVar("R", bound=Resettable)

_objects: list[Resettable] = []


def register(state: R) -> R:
    """Let `reset` reset this object too, and return it."""
    _objects.append(state)
    return state


def reset() -> None:
    """Reset every registered object."""
    for state in _objects:
        state.reset()


class LastQuery:
    """When this process last queried for something due, which any process may do."""

    def __init__(self) -> None:
        self._at = float("-inf")

    def repeat(self, interval: float) -> bool:
        """Count a query as made now. Return False if the last one is less than `interval` ago."""
        now = time.monotonic()
        if now - self._at < interval:
            return False
        self._at = now
        return True

    def reset(self) -> None:
        """Query again the next time."""
        self._at = float("-inf")
