"""Wait for a condition instead of sleeping."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds. Generous, for a machine on which a process gets a tenth of its time: only a test that
#: fails waits so long. `scripts/mutants`, whose tests are to fail, waits less.
BOUND = float(os.environ.get("OJS_TEST_BOUND", "240"))
#: Seconds between the first two checks, and between two of a long wait: what a test waits for takes
#: long where the processor is busy, and each check takes more of it.
PAUSE, LONG_PAUSE = 0.02, 0.1


def eventually(
    condition: Callable[[], T], what: str, *, within: float = BOUND, pause: float = PAUSE
) -> T:
    """Return the value of the condition once it is true. Fail after `within` seconds."""
    end = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"it did not come true within {within:.0f} s: {what}")
        time.sleep(pause)
        pause = max(pause, min(pause * 1.2, LONG_PAUSE))
    return value
