"""The pulse of a process: it beats, and does what the answer says.

It also watches the clock of every run.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from django.db import Error, connections

from django_ojs.models.attempt import Outcome
from django_ojs.models.worker import Directive
from django_ojs.operations import beat
from django_ojs.operations.beat import Registration
from django_ojs.operations.maintenance.timeouts import timeout_failure
from django_ojs.storage.dialects.base import Session
from django_ojs.worker.completer import Finisher
from django_ojs.worker.executor import interrupt
from django_ojs.worker.in_flight import Hand, Phase, Run
from django_ojs.worker.job_log import Report
from django_ojs.worker.wake_event import Bell

logger = logging.getLogger("django_ojs")

#: How often the clocks of the runs are looked at: how late a timeout may be.
TICK = 0.1

#: An interrupted thread that is still there after this waits in C, and will not end.
STUCK_AFTER = 10.0


class Pulse:
    """A thread that beats while the process lives, draining included."""

    def __init__(
        self,
        worker_id: str,
        hand: Hand,
        finisher: Finisher,
        report: Report,
        *,
        interval: timedelta,
        registration: Registration,
        directed: Callable[[Directive], None],
        stuck: Callable[[], None],
    ) -> None:
        self._worker_id = worker_id
        self._hand = hand
        self._finisher = finisher
        self._report = report
        self._interval = interval
        self._registration = registration
        self._directed = directed
        self._stuck = stuck
        self._interrupted: list[Run] = []
        self._stop = Bell()
        self.state = Directive.RUNNING
        self.session: Session | None = None
        #: Whether the database knows the worker. Before that it must hold no job: nobody would
        #: notice its death.
        self.registered = False
        self._beat()
        self._thread = threading.Thread(target=self._work, name="ojs-pulse", daemon=True)
        self._thread.start()

    def attach(self) -> bool:
        """Tie the worker's life to the calling thread's database session.

        Return False when that is not its own.
        """
        # A beat meanwhile must not write the old session, which is gone, over the new one.
        self.session = None
        self.session = beat.attach_session(self._worker_id)
        return self.session is not None

    def close(self) -> None:
        """Stop beating."""
        self._stop.ring()
        self._thread.join(5)

    def _work(self) -> None:
        due = time.monotonic() + self._interval.total_seconds()
        try:
            while True:
                idle = min(0.5, self._interval.total_seconds())
                if self._stop.wait(TICK if len(self._hand) else idle):
                    return
                self._watch()
                if time.monotonic() >= due or not self.registered:
                    self._beat()
                    due = time.monotonic() + self._interval.total_seconds()
        finally:
            connections.close_all()

    def _beat(self) -> None:
        runs = {run.job.id: run for run in self._hand.all()}
        # Reservations are long and beats are many: one is extended when half of it is gone.
        aging = [key for key, run in runs.items() if _half_gone(run)]
        try:
            answer = beat.beat(
                self._worker_id,
                state=self.state,
                holding=list(runs),
                extend=aging,
                interval=self._interval,
                registration=self._registration,
                session=self.session,
            )
        except Error as error:
            # A worker goes on as it was (worker-protocol §4.6).
            self._report.database_away(error)
            connections.close_all()
            return
        self.registered = True
        for key in answer.lost:
            # Cancelled, or taken over; or done and written a moment ago, and then `take` finds
            # nothing to take.
            if runs[key].take(Phase.RUNNING, self._interrupt) or runs[key].take(Phase.WAITING):
                self._hand.free()
                self._hand.remove([runs[key]])
                self._report.lost(runs[key])
        if answer.state is not self.state:
            self._directed(answer.state)

    def _watch(self) -> None:
        for run in self._hand.all():
            if run.overdue and run.take(Phase.RUNNING, self._interrupt):
                self._hand.free()
                self._finisher.failed(
                    run,
                    timeout_failure(),
                    outcome=Outcome.TIMEOUT,
                    seconds=time.monotonic() - run.started,
                )
        if self._interrupted:
            self._look_for_stuck_threads()

    def _interrupt(self, run: Run) -> None:
        interrupt(run)
        self._interrupted.append(run)

    def _look_for_stuck_threads(self) -> None:
        late = time.monotonic() - STUCK_AFTER
        self._interrupted = [
            run
            for run in self._interrupted
            # The thread itself: its number may by now be another's, which came in its place.
            if run.cancel_task is None and run.thread is not None and run.thread.is_alive()
        ]
        if any(run.taken_at < late for run in self._interrupted):
            self._interrupted.clear()
            self._stuck()


def _half_gone(run: Run) -> bool:
    if run.job.lease_until is None or run.job.started_at is None:
        return False
    lease = (run.job.lease_until - run.job.started_at).total_seconds()
    # By our own clock, from the moment it was claimed: the two clocks need not agree.
    return time.monotonic() - run.claimed_at > lease / 2
