"""How many threads run jobs at a time: one while jobs are so short that threads hinder each other.

Only one thread executes Python at a time. A handler that writes to a file or a socket lets another
thread go on, and then waits for it. With jobs that take microseconds, waking threads costs more
than the jobs.
"""

import sys
import time

#: A job that ends sooner than this, in seconds, has waited for nothing: one query takes longer.
SHORT = 0.0001

#: This part of the jobs that ended under one thread must be short.
PART_SHORT = 0.5

#: How many jobs are judged together.
SAMPLE = 16

#: Seconds within which a job must end while one thread runs all jobs; otherwise other threads
#: start. At least this many checks must find that no job has ended: the thread that checks executes
#: Python, so while it was busy and checked late, the job could not run.
STALLED_AFTER, STALLED_LOOKS = 0.01, 2

#: How many jobs must wait for each slot before one thread is tried. Fewer jobs are started at
#: once.
WAITING_PER_SLOT = 4

#: After jobs that were too long, the number of submissions until the next trial grows by this
#: factor, up to the second number.
BACKOFF, LONGEST_BACKOFF = 4, 64


class ThreadLimit:
    """The number of threads that may run jobs. The executor's lock guards it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.threads = slots
        # If there is no GIL, threads do not wait for each other.
        self._may_help = slots > 1 and getattr(sys, "_is_gil_enabled", lambda: True)()
        # The counts of the present sample.
        self._ended = self._short = 0
        self._pause, self._skip = 1, 0
        # Whether a job has ended since the last check, and how many checks in a row found none.
        self._has_progress, self._looks, self._progress_at = False, 0, 0.0

    def resize(self, slots: int) -> None:
        """Change the number of slots."""
        if not self.is_reduced:
            self.threads = slots
        self._slots = slots

    @property
    def is_reduced(self) -> bool:
        """Whether one thread runs all jobs."""
        return self.threads < self._slots

    def submitted(self, waiting: int) -> None:
        """Set the limit by the number of jobs that wait, new ones included."""
        if waiting < WAITING_PER_SLOT * self._slots:
            self.threads = self._slots
        elif self._may_help and not self.is_reduced:
            if self._skip:
                self._skip -= 1
                return
            self.threads = 1
            self._ended = self._short = 0
            self._has_progress = True

    def ended(self, seconds: float) -> bool:
        """Count a job that took `seconds`. Return whether more threads may start now."""
        if not self.is_reduced:
            return False
        self._has_progress = True
        self._ended += 1
        self._short += seconds < SHORT
        if self._ended - self._short > SAMPLE * (1 - PART_SHORT):
            self._lift()
            return True
        if self._ended == SAMPLE:
            self._ended = self._short = 0
            self._pause = 1
        return False

    def stalled(self) -> bool:
        """Check whether jobs end, and lift the limit if not. Return whether it was lifted."""
        if not self.is_reduced:
            return False
        now = time.monotonic()
        if self._has_progress:
            self._has_progress, self._looks, self._progress_at = False, 0, now
            return False
        self._looks += 1
        if self._looks < STALLED_LOOKS or now - self._progress_at < STALLED_AFTER:
            return False
        self._lift()
        return True

    def _lift(self) -> None:
        self.threads = self._slots
        self._skip, self._pause = self._pause, min(LONGEST_BACKOFF, self._pause * BACKOFF)
