"""Wait for a condition, never for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Generous: it is only ever used up by a test that fails.
BOUND = 20.0
#: Between two looks.
PAUSE = 0.02


def eventually(
    condition: Callable[[], T], what: str, *, within: float = BOUND, pause: float = PAUSE
) -> T:
    """Return what the condition answers once it is true. Fail when it never is."""
    end = time.monotonic() + within
    while not (answer := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"it did not come true within {within:.0f} s: {what}")
        time.sleep(pause)
    return answer
