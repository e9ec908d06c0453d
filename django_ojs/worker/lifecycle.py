"""The states of a worker: running, quiet, terminate (worker-protocol §2). The last is final."""

import time
from collections.abc import Callable
from datetime import timedelta

from django_ojs.models.worker import Directive

#: Signals to stop that come within this many seconds are the same request, sent in several ways: a
#: platform sends TERM to every process, and a wrapper forwards the one that it got itself.
SAME_REQUEST = 1.0


class StopRequests:
    """Counts the requests to stop. The second one ends the grace period."""

    def __init__(self) -> None:
        self._first_at: float | None = None

    def is_second(self) -> bool:
        """Count a signal. Return whether it is a second request, and not a repetition."""
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
        return now - self._first_at >= SAME_REQUEST


class Lifecycle:
    """The state of one process. `on_signal` is safe in a signal handler if `on_change` is."""

    def __init__(self, grace: timedelta, on_change: Callable[[], None]) -> None:
        self.state = Directive.RUNNING
        self.deadline = float("inf")
        self._grace = grace.total_seconds()
        self._on_change = on_change
        self._quiet_by_signal = False
        #: Whether a signal, and not a directive, asked for the end.
        self.ended_by_signal = False

    @property
    def is_directed(self) -> bool:
        """Whether a directive, and no signal, has asked for the end."""
        return self.state is Directive.TERMINATE and not self.ended_by_signal

    @property
    def expired(self) -> bool:
        """Whether the grace period is over."""
        return time.monotonic() >= self.deadline

    @property
    def remaining(self) -> float:
        """Seconds of the grace period that remain; infinite while not terminating."""
        return max(0.0, self.deadline - time.monotonic())

    def on_signal(self, wanted: Directive) -> None:
        """Go to the state that a signal asks for.

        A repeated signal does not end the grace period: the code that counts the requests calls
        `stop_at_once`.
        """
        if wanted is Directive.TERMINATE:
            self.ended_by_signal = True
        self._quiet_by_signal = wanted is Directive.QUIET
        self._go(wanted)

    def stop_at_once(self) -> None:
        """End the grace period."""
        self._go(Directive.TERMINATE)
        self.deadline = 0.0
        self._on_change()

    def on_directive(self, wanted: Directive) -> None:
        """Go to the state in the response to a beat.

        "running" resumes a worker that a directive made quiet, but not one that a signal made
        quiet.
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
        self._on_change()
