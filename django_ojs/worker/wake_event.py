"""An event that wakes a waiting thread, and is safe to set from a signal handler."""

import threading
from contextlib import suppress


class WakeEvent:
    """Clears itself when a wait ends. Setting it twice before a wait has the effect of once.

    It is a bare lock, because a signal handler may set it while it interrupts the wait itself,
    where a Condition would deadlock. A SimpleQueue does not work either: if a signal interrupts its
    `get` when the timeout ends (a process that was stopped and goes on), it waits for ever.
    """

    def __init__(self) -> None:
        self._cleared = threading.Lock()
        self._cleared.acquire()

    def set(self) -> None:
        """End the current wait, or the next one."""
        with suppress(RuntimeError):  # It is set already.
            self._cleared.release()

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds. Return whether the event was set."""
        return self._cleared.acquire(timeout=timeout)
