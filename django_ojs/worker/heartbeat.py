"""The heartbeat of a process, and the timeouts of its jobs."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from django.db import Error, connections

from django_ojs.conf import settings
from django_ojs.hooks import UNDONE_BY
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.models.worker import Directive
from django_ojs.operations import beat
from django_ojs.operations.beat import Registration
from django_ojs.operations.worker_activity import MISSED_BEATS
from django_ojs.spec.timeouts import failure_of
from django_ojs.storage import database
from django_ojs.storage.backoff import Backoff
from django_ojs.storage.connection_watch import ConnectionWatch
from django_ojs.storage.dialects.server import Session
from django_ojs.worker.completer import Completer
from django_ojs.worker.handler_call import interrupt, interrupt_late
from django_ojs.worker.in_flight import JobsInFlight, Phase, Run
from django_ojs.worker.job_log import JobLog
from django_ojs.worker.wakes import WakeEvent

#: Seconds between two checks of the timeouts: how late a timeout may be.
TICK = 0.1

#: An interrupted thread that is alive after this many seconds waits in C code and will not end.
STUCK_AFTER = 10.0

#: Seconds between two checks of interrupted threads when no job is running.
STUCK_TICK = 0.5

#: Seconds until the next try to extend leases whose rows were locked.
EXTEND_AGAIN = 0.5
#: The shortest time without a reply, in seconds, after which connections are ended. On a busy
#: machine a healthy server may take some seconds.
LEAST_TIMEOUT = 3.0

#: Seconds that closing waits for a beat that is under way.
CLOSE_TIMEOUT = 5.0


class Heartbeat:
    """A thread that sends beats until the process has drained, and applies the responses."""

    def __init__(
        self,
        worker_id: str,
        in_flight: JobsInFlight,
        completer: Completer,
        job_log: JobLog,
        *,
        interval: timedelta,
        registration: Registration,
        on_directive: Callable[[Directive], None],
        on_slots: Callable[[int], None],
        on_stuck_thread: Callable[[], None],
    ) -> None:
        self._worker_id = worker_id
        self._in_flight = in_flight
        self._completer = completer
        self._job_log = job_log
        self._interval = interval
        self._registration = registration
        self._on_directive = on_directive
        self._on_slots = on_slots
        self._on_stuck_thread = on_stuck_thread
        #: Runs whose threads must end soon.
        self.interrupted: list[Run] = []
        self._wake = WakeEvent()
        self._is_closed = self._is_idle = False
        self._state = self._told = Directive.RUNNING
        #: The listener's database session, whose end means the death of this worker. It is None
        #: while the session may have ended though the worker lives; then only silence means death.
        self.session: Session | None = None
        self._is_session_new = False
        #: Whether the listener is to attach its session again.
        self.wants_session = False
        #: Whether the last heartbeat was stored. If not, the worker must claim no job, because it
        #: may count as dead already, or its death would not be noticed.
        self.registered = False
        # Whether leases could not be extended at the last heartbeat.
        self._is_behind = False
        self._backoff = Backoff()
        self._due = 0.0
        self._watch = ConnectionWatch(max(_silence(interval), LEAST_TIMEOUT))
        self._watch.start()
        with self._watch:
            self._beat()
        self._thread = threading.Thread(target=self._work, name="ojs-heartbeat", daemon=True)
        self._thread.start()

    def attach_session(self) -> bool:
        """Let the end of the calling thread's database session mean the worker's death.

        Return False when the session is not the worker's own (behind a pooler).
        """
        # A beat in between must not store the old session, which is gone, in place of the new one.
        self.session, self.wants_session = None, False
        self.session = beat.attach_session(self._worker_id)
        # A beat in between may have removed the new session, so the next beat sends it again.
        self._is_session_new = self.session is not None
        self._wake.set()
        return self.session is not None

    @property
    def state(self) -> Directive:
        """The state of the process, which the next beat reports; a new one is reported at once."""
        return self._state

    @state.setter
    def state(self, state: Directive) -> None:
        if state is not self._state:
            self._state = state
            self._wake.set()

    def detach_session(self) -> None:
        """Send no session, because the listener's session has ended.

        After a failover this thread may be connected seconds before the listener is, and a server
        may have no connection left for it. A heartbeat says so at once: in two seconds, others
        would take the end of the session for the death of this worker.
        """
        if self.session is not None:
            self.session = None
            self._is_session_new = True
            self._wake.set()

    def notice_jobs(self) -> None:
        """Check the timeouts of jobs from now on."""
        if self._is_idle:
            self._wake.set()

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()
        self._thread.join(CLOSE_TIMEOUT)

    def _work(self) -> None:
        try:
            while True:
                self._wait()
                if self._is_closed:
                    return
                self._fail_overdue()
                if time.monotonic() >= self._next_beat() or self._is_session_new:
                    with self._watch:
                        self._beat()
        finally:
            self._watch.close()
            connections.close_all()

    def _wait(self) -> None:
        # This is set before the jobs are read, so that a later job wakes this thread.
        self._is_idle = True
        seconds = max(0.0, self._due - time.monotonic())
        if len(self._in_flight):
            seconds = TICK
        elif self.interrupted:
            seconds = min(seconds, STUCK_TICK)
        self._wake.wait(seconds)
        self._is_idle = False

    def _next_beat(self) -> float:
        """Return when to send a heartbeat: earlier for short leases, unless the last one failed."""
        if not self.registered:
            return self._due
        if self._state is not self._told:
            return 0.0
        return min([self._due, *(run.extension_due for run in self._in_flight.all())])

    def _beat(self) -> None:
        interval = self._interval.total_seconds()
        # The time is taken before the statement, so that after a heartbeat that hung the next one
        # follows at once.
        began = time.monotonic()
        renews = self.registered and not self._is_session_new
        self._is_session_new = False
        state = self._state
        runs = {run.job.id: run for run in self._in_flight.all()}
        # Leases are much longer than the interval. Only those are extended for which the next
        # heartbeat may be too late.
        to_extend = [run for run in runs.values() if run.extension_due < began + interval]
        try:
            response = beat.beat(
                self._worker_id,
                state=state,
                holding=list(runs),
                extend=[run.job.id for run in to_extend],
                interval=self._interval,
                registration=self._registration,
                session=self.session,
                renews=renews,
                is_behind=self._is_behind,
            )
        except MemoryError:
            raise  # The process cannot go on; see `supervisor`.
        except Exception as error:
            # Without a response, a worker stays in its state (worker-protocol §4.6).
            if isinstance(error, Error):
                self._job_log.database_away(error)
                connections.close_all()
                database.recheck(healthy=True)
            elif getattr(error, UNDONE_BY, None) is not None:
                self._job_log.heartbeat_undone(getattr(error, UNDONE_BY), error)
            else:
                raise
            # The next heartbeat comes soon, because without one this worker is declared dead.
            # Until then the worker claims nothing: this thread may get no connection while the
            # others have theirs.
            self.registered = False
            # The next beat may reach another server, which does not have the session. If the
            # network is silent, the listener notices that later.
            self.wants_session, self.session = self.session is not None or self.wants_session, None
            self._due = time.monotonic() + min(interval, self._backoff.pause())
            return
        self._backoff.reset()
        self._due = began + interval
        self._told = state
        self.registered = True
        for run in to_extend:
            is_late = run.job.id in response.locked
            run.extended_at = began - run.lease / 3 + EXTEND_AGAIN if is_late else began
        self._is_behind = bool(response.locked)
        if self._is_behind:
            self._job_log.leases_locked(response.locked)
        if self._in_flight.status is not None:
            self._in_flight.status.note_ready(_silence(self._interval))
        for key in response.lost:
            # The job was cancelled, or claimed by another worker. Or it was completed and stored a
            # moment ago: then its phase is DONE and there is nothing to revoke.
            run = runs[key]
            if run.is_committed:
                continue  # The job is completed, and functions of on_commit run now.
            if run.revoke(Phase.RUNNING, self._interrupt) or run.revoke(Phase.WAITING):
                self._in_flight.release_slot()
                self._in_flight.remove([run])
                # The commit of an atomic handler may be stored while its reply is on the way.
                self._completer.settle_lost(run)
        if response.state is not state:
            self._on_directive(response.state)
        if response.slots is not None:
            self._on_slots(response.slots)
            # The next beat, which is sent at once, reports it.
            self._registration = replace(self._registration, concurrency=response.slots)
            self._due = 0.0

    def _fail_overdue(self) -> None:
        for run in self._in_flight.all():
            if run.overdue and run.revoke(Phase.RUNNING, self._interrupt):
                self._in_flight.release_slot()
                self._completer.fail(
                    run,
                    failure_of(run.job, settings().default_timeout),
                    outcome=AttemptOutcome.TIMEOUT,
                    seconds=time.monotonic() - run.started,
                )
        if self.interrupted:
            self._check_for_stuck_threads()

    def _interrupt(self, run: Run) -> None:
        interrupt(run)
        self.interrupted.append(run)

    def _check_for_stuck_threads(self) -> None:
        stuck_before = time.monotonic() - STUCK_AFTER
        self.interrupted = [
            run
            for run in self.interrupted
            # The thread object is asked, because the system may have given the thread's number to
            # another one. The thread of a coroutine lives on, and is removed when its task ends.
            if (thread := run.thread) is not None and thread.is_alive()
        ]
        for run in self.interrupted:
            interrupt_late(run)
        if any(run.revoked_at < stuck_before for run in self.interrupted):
            self.interrupted.clear()
            self._on_stuck_thread()


def _silence(interval: timedelta) -> float:
    """Return the seconds without a heartbeat after which this worker counts as dead."""
    return MISSED_BEATS * interval.total_seconds()
