"""What wakes a thread that waits."""

import threading
from contextlib import suppress


class Bell:
    """Rings once, however often it is rung before somebody hears it.

    A bare lock: a signal handler may ring it that interrupted the very wait, where a Condition
    would wait for itself. Nor a SimpleQueue: interrupted by a signal when its time is up (a process
    that was stopped and goes on), its `get` waits for ever.
    """

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wake whoever waits, or the next one to wait."""
        with suppress(RuntimeError):  # It has been rung already.
            self._silence.release()

    def wait(self, timeout: float) -> bool:
        """Wait for the bell, at most so many seconds. Return whether it rang."""
        return self._silence.acquire(timeout=timeout)
