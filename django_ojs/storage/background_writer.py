"""Threads that write what a process has collected in memory: figures, events of rejections.

A caller cannot always write this itself: its transaction may roll back, and its process may end, or
collect nothing more for a long time.
"""

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import parent_process
from typing import Final

from django.db import connections

logger = logging.getLogger("django_ojs")

#: Seconds that a process at its end waits for all writers, if the database does not respond.
_EXIT_TIMEOUT: Final = 3.0


class BackgroundWriter:
    """Calls `write` in a daemon thread with its own connection: after a request, and at exit.

    The first request starts the thread, which ends when it has nothing to do. A forked child does
    not have the thread. It calls `forget` to drop its copy of the data, which its parent writes.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[], object],
        *,
        forget: Callable[[], object],
        delay: float = 0.0,
        interval: float = 0.0,
        linger: float = 0.0,
        runs_in_tests: bool = True,
    ) -> None:
        """Take the thread's name, and these times in seconds.

        `delay`: from the request to the write; `interval`: between two writes; `linger`: how long
        an idle thread keeps its connection. Without `runs_in_tests`, requests in a process that
        runs Django's tests do nothing.
        """
        self._name, self._write, self._forget = name, write, forget
        self._delay, self._interval, self._linger = delay, interval, linger
        self._runs_in_tests = runs_in_tests
        self._begin()
        _writers.append(self)

    def _begin(self) -> None:
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due: float | None = None
        self._written_at = 0.0
        self._closing = False

    def request(self) -> None:
        """Let the thread write what was collected before this call."""
        # No lock is needed: a write that is due has not begun, so it will include this.
        if self._due is not None or (not self._runs_in_tests and _runs_tests()):
            return
        with self._condition:
            if self._due is None:
                self._due = max(time.monotonic() + self._delay, self._written_at + self._interval)
                self._start_or_wake()

    def _start_or_wake(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._condition.notify()
            return
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # There are no more threads, or the interpreter is ending. The caller must not fail
            # because of it.
            self._due = None
            return
        self._thread = thread
        _write_at_exit()

    def cancel(self) -> None:
        """Forget the request: a caller has written everything."""
        self._due = None

    def close(self, timeout: float) -> None:
        """Write what was requested, and end the thread. Wait for at most `timeout` seconds."""
        with self._condition:
            thread = self._thread
            if thread is None or thread is threading.current_thread():
                return
            self._closing = True
            self._condition.notify()
        thread.join(timeout)
        self._closing = False

    def after_fork(self) -> None:
        """Start again in a forked child."""
        self._begin()
        self._forget()

    def _run(self) -> None:
        while self._wait():
            try:
                self._write()
            except Exception:
                logger.exception("%s could not write.", self._name)
                # A connection that was lost would fail again.
                connections.close_all()
            self._written_at = time.monotonic()
            if self._delay > self._linger:
                connections.close_all()

    def _wait(self) -> bool:
        """Wait until it is time to write.

        Return False if there is nothing to do: the thread ends.
        """
        idle_until = time.monotonic() + self._linger
        with self._condition:
            while True:
                now, due = time.monotonic(), self._due
                if due is not None and (self._closing or now >= due):
                    self._due = None
                    return True
                if due is None and (self._closing or now >= idle_until):
                    connections.close_all()
                    self._thread = None
                    return False
                self._condition.wait((idle_until if due is None else due) - now)


_writers: Final[list[BackgroundWriter]] = []
_registered_in: int | None = None


def close_all(timeout: float = _EXIT_TIMEOUT) -> None:
    """Write everything that was requested, at the end of a process."""
    end = time.monotonic() + timeout
    for writer in _writers:
        writer.close(max(0.0, end - time.monotonic()))


def _write_at_exit() -> None:
    # `close_all` is registered with the first thread of each process, because a child of
    # multiprocessing drops what its parent registered. Some versions of multiprocessing run
    # finalizers only.
    global _registered_in
    if _registered_in == os.getpid():
        return
    _registered_in = os.getpid()
    atexit.register(close_all)
    if parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, close_all, exitpriority=0)


def _after_fork() -> None:
    for writer in _writers:
        writer.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _runs_tests() -> bool:
    # A thread does not see the transaction of a TestCase. It would leave rows in the test database,
    # and keep it from being dropped.
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(utils._TestState, "saved_data")
