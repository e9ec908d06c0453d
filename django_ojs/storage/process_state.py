"""Objects with state that a process keeps in memory, and one function that resets them all.

A fork or a test begins without what the process before it had read, counted or sent.
"""

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
