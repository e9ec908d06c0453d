"""Children that a test forks from its own process."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable


def fork(work: Callable[[], object] = lambda: None) -> int:
    """Let a child process do this and end on the spot; return its process id.

    It is killed: coverage has replaced `os._exit`, and may fail in a forked process, which would
    then go on as a second runner of the tests.
    """
    with warnings.catch_warnings():
        # The process of the tests may have threads; the child needs none of their locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:  # pragma: no cover - runs in the child
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    return pid
