"""What ends the wait of a thread, or of a process."""

import os
import select
import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class WakeEvent:
    """Wakes a waiting thread, and is safe to set from a signal handler.

    It clears itself when a wait ends. Setting it twice before a wait is the same as once.

    It is a bare lock, because a signal handler may set it while it interrupts the wait itself,
    where a Condition would deadlock. A SimpleQueue does not work either: if a signal interrupts its
    `get` as the timeout ends (when a stopped process continues), `get` waits for ever.
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


class WakePipe:
    """A pipe through which a signal, or a child, ends the wait of a process.

    The process makes it before it forks.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)
        self._finalizer = weakref.finalize(self, _close, self._read, self._write)

    def fileno(self) -> int:
        """Return the end that becomes readable, for a selector."""
        return self._read

    def wake(self) -> None:
        """End the wait of the process that made the pipe, or its next wait."""
        # A full pipe ends the wait as well.
        with suppress(BlockingIOError):
            os.write(self._write, b"\0")

    def wait(self, timeout: float) -> None:
        """Wait for a signal or for `wake`, at most `timeout` seconds."""
        if select.select([self._read], [], [], timeout)[0]:
            with suppress(BlockingIOError):
                os.read(self._read, 4096)

    @contextmanager
    def woken_by_signals(self) -> Iterator[None]:
        """Let each signal that has a handler in Python end the wait, until the block ends."""
        previous = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)

    def close(self) -> None:
        """Close the pipe in this process."""
        self._finalizer()


def _close(*ends: int) -> None:
    for end in ends:
        os.close(end)
