"""The states of a worker: running, quiet, terminate (worker-protocol §2).

There is no way back from the last.
"""

import time
from collections.abc import Callable
from datetime import timedelta

from django_ojs.models.worker import Directive


class Lifecycle:
    """The state of one process. `signalled` is safe in a signal handler if `changed` is."""

    def __init__(self, grace: timedelta, changed: Callable[[], None]) -> None:
        self.state = Directive.RUNNING
        self.deadline = float("inf")
        self._grace = grace.total_seconds()
        self._changed = changed
        self._quiet_by_signal = False
        #: Whether a signal, and not a directive, told it to end.
        self.ended_by_signal = False

    @property
    def expired(self) -> bool:
        """Whether the grace period is over."""
        return time.monotonic() >= self.deadline

    @property
    def left(self) -> float:
        """Seconds of grace that are left; infinite while not terminating."""
        return max(0.0, self.deadline - time.monotonic())

    def signalled(self, wanted: Directive) -> None:
        """Go to a state a signal asked for. Terminate twice ends the grace period."""
        if wanted is Directive.TERMINATE:
            # The first one after a directive to terminate is not the second of its kind.
            if self.ended_by_signal:
                self.deadline = 0.0
                self._changed()
                return
            self.ended_by_signal = True
        self._quiet_by_signal = wanted is Directive.QUIET
        self._go(wanted)

    def directed(self, wanted: Directive) -> None:
        """Go to the state that a beat was answered with.

        "running" resumes a worker that was made quiet the same way.
        """
        if wanted is Directive.RUNNING and self._quiet_by_signal:
            return
        self._go(wanted)

    def _go(self, wanted: Directive) -> None:
        if self.state in (Directive.TERMINATE, wanted):
            return
        if wanted is Directive.TERMINATE:
            self.deadline = time.monotonic() + self._grace
        self.state = wanted
        self._changed()
