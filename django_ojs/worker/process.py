"""One worker process: claims jobs, dispatches them, and drains before it stops."""

import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from enum import IntEnum

from django.db import Error, connections

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.handlers import job_types
from django_ojs.models.worker import Directive
from django_ojs.operations.beat import Registration
from django_ojs.operations.workers import removal
from django_ojs.spec import ids
from django_ojs.spec.failure import Failure
from django_ojs.spec.isolation import Isolation
from django_ojs.storage import notify
from django_ojs.version import VERSION
from django_ojs.worker.claim_sizer import MAX_SLOT_WAIT, ClaimSizer
from django_ojs.worker.claimer import UNSTORED_CHECK_INTERVAL, Claimer
from django_ojs.worker.completer import Completer
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.dispatcher import Dispatcher
from django_ojs.worker.executor import Executor
from django_ojs.worker.handler_call import interrupt, interrupt_late
from django_ojs.worker.heartbeat import Heartbeat
from django_ojs.worker.in_flight import JobsInFlight, Phase
from django_ojs.worker.job_log import JobLog, number_of_jobs
from django_ojs.worker.lifecycle import Lifecycle, StopRequests
from django_ojs.worker.listener import Listener
from django_ojs.worker.maintenance import MaintenanceThread
from django_ojs.worker.process_status import ProcessStatus
from django_ojs.worker.queue_selection import handler_queues, mismatch
from django_ojs.worker.sibling_claims import SiblingClaims
from django_ojs.worker.wakes import WakeEvent

logger = logging.getLogger("django_ojs.worker")

#: Seconds between two log lines of a worker that drains (graceful-shutdown §5.2).
DRAIN_LOG_INTERVAL = 5.0

#: Seconds without a job after which a worker warns that no handler uses its queues.
IDLE_WARNING_INTERVAL = 300.0

#: Seconds in which the last outcomes must be stored when the process ends.
FINAL_WRITE_TIMEOUT = 5.0

#: With `--once`, when no job is left: how often extensions are asked for more jobs before the
#: process ends, and the seconds between two times. Another process may be enqueueing the same jobs.
ROUNDS_FOR_NEXT_JOBS = 40
ROUND_FOR_NEXT_JOBS = 0.05

#: A worker with handlers for more types does not report them: while it is busy, each heartbeat
#: stores them again.
MAX_REPORTED_TYPES = 500

#: A claimed job that found no slot for this many seconds becomes available again: the jobs before
#: it turned out to be slow.
GIVE_BACK_AFTER = MAX_SLOT_WAIT * 3


class Exit(IntEnum):
    """The exit code of a worker process, for the supervisor."""

    #: The process was stopped. The code is not 0, because os._exit(0) in a handler has that code,
    #: and then the process must be replaced.
    OK = 74
    #: The process is to be replaced: it reached its limit of jobs or memory, or a thread will not
    #: end.
    REPLACE = 75


class WorkerProcess:
    """Runs jobs until it is stopped. `on_signal` may be called from a signal handler."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        worker_id: str | None = None,
        parent: int | None = None,
        status: ProcessStatus | None = None,
        siblings: SiblingClaims | None = None,
    ) -> None:
        self.id = worker_id or f"worker_{ids.uuid7()}"
        self.job_log = JobLog()
        self._config = config
        self._wake = WakeEvent()
        self._lifecycle = Lifecycle(config.grace, self._wake.set)
        self._stop_requests = StopRequests()
        self._parent = parent
        self._status = status
        self._siblings = siblings or SiblingClaims()
        self._waiting = False
        # Whether nothing woke this thread, so that a new job is unlikely.
        self._is_poll = False
        self._mismatch = mismatch(config.queues, handler_queues(), config.pool)
        self._idle_since = time.monotonic()
        self._replace = False
        # Whether it uses more memory than it may before its first job.
        self._starts_too_large = False
        # Whether a handler does not end. Jobs may wait for the slot that it keeps.
        self._is_stuck = False
        self._rounds_without_job = 0
        # With `--once`: whether there were no further jobs when the process looked last.
        self._has_no_next_jobs = False

    def run(self) -> Exit:
        """Work until stopped, or (`once`) until the queues are empty."""
        hooks.call_after(hooks.registry.worker_started, self.id)
        config = self._config
        self._in_flight = JobsInFlight(self._status)
        self._claim_sizer = ClaimSizer(config.threads)
        self._completer = Completer(
            self.id, self._in_flight, self.job_log, self._on_slot_free, self._on_room
        )
        self._executor = Executor(
            config.threads, self._completer.handler_ended, config.most_threads
        )
        self._dispatcher = Dispatcher(
            self.id, self._in_flight, self._executor, self._completer, self.job_log, config.threads
        )
        self._heartbeat = Heartbeat(
            self.id,
            self._in_flight,
            self._completer,
            self.job_log,
            interval=config.heartbeat_interval,
            registration=self._registration(),
            on_directive=self._lifecycle.on_directive,
            on_slots=self._on_slots,
            on_stuck_thread=self._on_stuck_thread,
        )
        self._claimer = Claimer(
            self.id,
            config,
            self._in_flight,
            self._claim_sizer,
            self._heartbeat,
            self.job_log,
            siblings=self._siblings,
        )
        # A process that may be killed by its job must not hold the lease of the maintenance.
        self._maintenance = MaintenanceThread(
            self.id, self.job_log, leads=config.isolation is not Isolation.ALONE
        )
        self._threads = [] if config.once else hooks.worker_threads(self.id)
        self._listener = Listener(
            config.queues,
            self._on_notify,
            self._heartbeat,
            self._claimer.on_connected,
        )
        logger.info(
            "%s runs jobs of %s%s, %d at a time%s",
            self.id,
            ", ".join(config.queues),
            f" for the pool {config.pool}" if config.pool else "",
            config.threads,
            ": one that may have killed a worker" if config.isolation is Isolation.ALONE else "",
        )
        if config.max_rss_mb is not None and (peak := _peak_mb()) > config.max_rss_mb:
            self._starts_too_large = True
            logger.warning(
                "%s uses %.0f MB before its first job, and --max-rss is %d: each process is "
                "replaced after its first jobs.",
                self.id,
                peak,
                config.max_rss_mb,
            )
        try:
            self._work()
        except BaseException:
            # A job may be the cause (it left no memory, for example). An orderly end would return
            # it to its queue without spending an attempt, again and again; the supervisor rescues
            # it instead.
            if self._status is None:
                self._end()
            raise
        self._end()
        return (
            Exit.REPLACE
            if self._replace and self._lifecycle.state is not Directive.TERMINATE
            else Exit.OK
        )

    def on_signal(self, wanted: Directive) -> None:
        """Go to the state that a signal asks for.

        With a supervisor, only the supervisor counts the requests to stop, because it may have
        forwarded one that this process got as well. If only this process gets one, from a handler
        or an operator, it is replaced.
        """
        is_directed = self._lifecycle.is_directed
        self._lifecycle.on_signal(wanted)
        if wanted is not Directive.TERMINATE:
            return
        if self._status is None:
            is_at_once = self._stop_requests.is_second()
        else:
            is_at_once = self._status.must_stop_at_once
            if not is_directed:
                self._status.note_leaving()
        if is_at_once:
            self._lifecycle.stop_at_once()

    def _work(self) -> None:
        logged_at = 0.0
        once = self._config.once
        while True:
            state = self._lifecycle.state
            is_quiet = self._replace and state is Directive.RUNNING
            self._heartbeat.state = Directive.QUIET if is_quiet else state
            # While jobs are running, a claim that finds none proves nothing, because they may
            # enqueue some.
            was_idle = not len(self._in_flight)
            if state is Directive.TERMINATE:
                self._completer.give_back(self._dispatcher.revoke_waiting())
                busy = self._in_flight.busy
                if self._lifecycle.expired or not (busy or self._is_storing()):
                    return
                if time.monotonic() - logged_at >= DRAIN_LOG_INTERVAL:
                    logged_at = time.monotonic()
                    logger.info(
                        "Stopping: waiting for %s; another TERM or INT (Ctrl-C) stops at once",
                        number_of_jobs(busy, "running")
                        if busy
                        else f"the outcomes of {number_of_jobs(self._in_flight.unstored)}",
                    )
            elif state is Directive.RUNNING and not self._replace and self._claim():
                continue
            elif not len(self._in_flight):
                is_drained = was_idle and self._claimer.found_none
                if once and is_drained and not self._has_no_next_jobs:
                    # A thread may have enqueued the next jobs since the claim. Only a claim after
                    # this check can show that none is left.
                    self._has_no_next_jobs = not self._may_have_next_jobs()
                    continue
                if self._replace or (once and (is_drained or state is not Directive.RUNNING)):
                    return
                if once and not was_idle:
                    # The last jobs have ended since then, so only another claim can show that none
                    # is left.
                    continue
            self._give_back_waiting()
            self._executor.fill()
            self.job_log.summary(self._in_flight.busy)
            self._warn_while_idle()
            self._check_isolated()
            self._check_replacement()
            self._wait()

    def _claim(self) -> bool:
        """Claim as many jobs as fit. Return whether to claim again at once."""
        jobs = self._claimer.claim(is_poll=self._is_poll)
        self._is_poll = False
        if self._claimer.is_spent:
            self._leave()
        if jobs:
            self._idle_since = time.monotonic()
            self._rounds_without_job = 0
            self._has_no_next_jobs = False
            unknown = self._dispatcher.dispatch(jobs, self._claimer.began_at)
            self._claim_sizer.pass_by(unknown if unknown == len(jobs) else 0)
            self._heartbeat.notice_jobs()
        return bool(jobs) and self._claimer.is_due()

    def _may_have_next_jobs(self) -> bool:
        """Let extensions enqueue the next jobs. Return whether there were any.

        Another thread or process may be enqueuing some of them, so this waits a little for it. What
        cannot be enqueued does not keep the process for ever.
        """
        try:
            if self._rounds_without_job >= ROUNDS_FOR_NEXT_JOBS or not hooks.next_jobs():
                return False
        except Error as error:
            self._claimer.rest(error)
        self._rounds_without_job += 1
        self._wake.wait(ROUND_FOR_NEXT_JOBS)
        return True

    def _warn_while_idle(self) -> None:
        now = time.monotonic()
        if self._mismatch is not None and now - self._idle_since >= IDLE_WARNING_INTERVAL:
            self._idle_since = now
            logger.warning("No job came in the last minutes. %s", self._mismatch)

    def _check_isolated(self) -> None:
        if (
            self._config.isolation is Isolation.SHARED
            and self._status is not None
            and self._lifecycle.state is Directive.RUNNING
        ):
            self._claimer.check_isolated(self._status)

    def _give_back_waiting(self) -> None:
        waiting = self._dispatcher.revoke_waiting(0.0 if self._is_stuck else GIVE_BACK_AFTER)
        if waiting:
            # Otherwise these jobs would be claimed again at once, until the slow jobs have ended.
            self._claim_sizer.record(GIVE_BACK_AFTER)
            self._completer.give_back(waiting)

    def _wait(self) -> None:
        # This is set before the process checks for work, because a thread that finds it set wakes
        # the process.
        self._waiting = True
        try:
            timeout = min(
                self._claimer.longest_wait(),
                self._executor.longest_wait(),
                self._lifecycle.remaining,
            )
            if self._in_flight.busy > self._dispatcher.slots:
                timeout = min(timeout, GIVE_BACK_AFTER)
            if self._lifecycle.state is Directive.TERMINATE and not self._in_flight.busy:
                timeout = min(timeout, UNSTORED_CHECK_INTERVAL)
            can_claim = self._can_claim()
            is_woken = self._wake.wait(0.0 if can_claim else timeout)
            self._is_poll = not (can_claim or is_woken or self._config.once)
        finally:
            self._waiting = False

    def _can_claim(self) -> bool:
        return self._may_claim() and self._claimer.is_due()

    def _may_claim(self) -> bool:
        return self._lifecycle.state is Directive.RUNNING and not self._replace

    def _is_storing(self) -> bool:
        """Whether outcomes are not stored yet and the database takes them."""
        return self._in_flight.unstored > 0 and not self._completer.is_away

    def _on_notify(self, queues: Collection[str] = (), sent_at: float | None = None) -> None:
        # A process that claims no jobs must not let the others wait for its claim.
        if self._may_claim() and self._claimer.on_notify(queues, sent_at) and self._waiting:
            self._wake.set()

    def _on_slot_free(self, seconds: float) -> None:
        self._claim_sizer.record(seconds)
        # A process with no job in flight polls too: new jobs may have come without a notification.
        if self._waiting and (not self._in_flight.busy or self._can_claim()):
            self._wake.set()

    def _on_room(self, queues: Collection[str]) -> None:
        """Wake the workers, because jobs ended in queues that limit how many may run."""
        self._wake.set()
        notify.send(queues)

    def _check_replacement(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            logger.warning("The supervisor has ended; this worker stops.")
            self._parent = None
            self._lifecycle.on_signal(Directive.TERMINATE)
        # If it was too large before its first job, so will be the process after it.
        may_be_replaced = self._claimer.claimed or not self._starts_too_large
        if self._config.max_rss_mb is not None and may_be_replaced and not self._replace:
            peak = _peak_mb()
            if peak > self._config.max_rss_mb:
                logger.info("%s has used %.0f MB and is replaced.", self.id, peak)
                self._leave()

    def _on_stuck_thread(self) -> None:
        logger.warning(
            "%s has a handler that did not end after its job timed out or was cancelled: "
            "another process takes its place, and this one ends when its other jobs have ended.",
            self.id,
        )
        self._is_stuck = True
        self._leave()
        self._wake.set()

    def _leave(self) -> None:
        """Stop claiming jobs, and end when the claimed ones are done.

        The supervisor starts the replacement now, because the last of these jobs may take hours.
        """
        self._replace = True
        if self._status is not None:
            self._status.note_leaving()

    def _end(self) -> None:
        self._completer.give_back(self._dispatcher.revoke_waiting())
        failure = Failure(type="shutdown", message="The worker shut down before the job was done.")
        running = self._in_flight.in_phase(Phase.RUNNING)
        if running:
            logger.warning(
                "Stopping now: %s will be available again",
                number_of_jobs(len(running), "running"),
            )
        for run in running:
            if run.revoke(Phase.RUNNING, interrupt):
                self._in_flight.release_slot()
                self._completer.requeue(run, failure)
        self._executor.close()
        hooks.call_after(hooks.registry.worker_stopping, self.id)
        # These are closed first, so that the handlers have time to end: on SQLite a handler's
        # transaction may hold the only write lock.
        self._listener.close()
        for run in running:
            interrupt_late(run)
        for each in self._threads:
            each.close()
        self._maintenance.close()
        stored = self._completer.close(FINAL_WRITE_TIMEOUT)
        self._heartbeat.close()
        hooks.call_after(hooks.registry.worker_ends)
        if (
            self._config.isolation is Isolation.ALONE
            and self._claimer.claimed
            and self._status is not None
        ):
            # The supervisor then starts the next isolated process at once. A process that found no
            # job skips this, because it could go on forever.
            with suppress(Error):
                self._claimer.note_isolated(self._status)
        if stored:
            try:
                removal.remove(
                    self.id,
                    reason="signal" if self._lifecycle.ended_by_signal else "shutdown",
                    jobs_completed=self.job_log.completed_count,
                )
            except Error:
                logger.debug(
                    "The worker was not deregistered; it counts as dead when its beats stay away."
                )
        logger.info(
            "%s stopped: %d completed, %d failed",
            self.id,
            self.job_log.completed_count,
            self.job_log.failed_count,
        )
        connections.close_all()

    def _on_slots(self, slots: int) -> None:
        """Run `slots` jobs at a time, as an operator has chosen. The heartbeat calls this."""
        logger.info("%s runs %d jobs at a time now", self.id, slots)
        self._claim_sizer.slots = self._dispatcher.slots = slots
        self._executor.resize(slots)
        self._wake.set()

    def _registration(self) -> Registration:
        return Registration(
            hostname=socket.gethostname()[:255],
            pid=os.getpid(),
            queues=self._config.queues,
            pool=self._config.pool,
            labels=self._config.labels,
            job_types=_reported_types(),
            concurrency=self._config.threads,
            least_slots=self._config.threads,
            most_slots=max(self._config.threads, self._config.most_threads),
            version=f"django_ojs {VERSION}",
            release=settings().release,
            started_at=datetime.now(UTC),
            enforces_timeouts=True,
        )


def _peak_mb() -> float:
    # Linux counts kibibytes, and macOS bytes.
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _reported_types() -> tuple[str, ...]:
    types = job_types()
    return tuple(types) if len(types) <= MAX_REPORTED_TYPES else ()
