"""One worker process: claims jobs, dispatches them, and drains before it stops."""

import logging
import os
import resource
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from enum import IntEnum

from django.db import Error, connections

from django_ojs import formatting
from django_ojs.conf import settings
from django_ojs.handlers import job_types
from django_ojs.models.worker import Directive
from django_ojs.operations.beat import Registration
from django_ojs.operations.fetch import fetch, isolated_waiting, may_be_cut, may_find
from django_ojs.operations.workers import removal, rescue
from django_ojs.operations.workflows import advance_due
from django_ojs.outbox.relay_threads import Relays, relays
from django_ojs.spec import ids
from django_ojs.spec.failure import Failure
from django_ojs.spec.isolation import Isolation
from django_ojs.spec.scheduling import ALL
from django_ojs.storage import claim_floors, database, notify
from django_ojs.storage.backoff import Backoff
from django_ojs.storage.figures import rollups
from django_ojs.storage.queue_limits import next_starts
from django_ojs.storage.queue_turns import Turns
from django_ojs.version import VERSION
from django_ojs.worker.batch_sizer import MAX_SLOT_WAIT, BatchSizer
from django_ojs.worker.completer import Completer
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.dispatcher import Dispatcher
from django_ojs.worker.executor import Executor
from django_ojs.worker.handler_call import interrupt
from django_ojs.worker.heartbeat import Heartbeat
from django_ojs.worker.in_flight import JobsInFlight, Phase
from django_ojs.worker.job_log import JobLog, number_of_jobs
from django_ojs.worker.lifecycle import Lifecycle
from django_ojs.worker.listener import Listener
from django_ojs.worker.maintenance import MaintenanceThread
from django_ojs.worker.process_status import MAX_ISOLATED, ProcessStatus
from django_ojs.worker.queue_selection import QueueSelection, handler_queues, mismatch
from django_ojs.worker.wake_event import WakeEvent

logger = logging.getLogger("django_ojs.worker")

#: Seconds between two log lines of a worker that drains (graceful-shutdown §5.2).
DRAIN_LOG_INTERVAL = 5.0

#: Seconds without a job after which a worker warns that its queues are not those of the handlers.
IDLE_WARNING_INTERVAL = 300.0

#: Seconds between two checks whether a job is available that must run alone.
ISOLATED_CHECK_INTERVAL = 1.0

#: A poll of more queues than these claims at once: the statement that asks whether there is a job
#: would be planned for too long.
MAX_ASKED_QUEUES = 20

#: So many polls in a row that took long are not those of a busy machine: an old snapshot makes them
#: slow, which is what the floors of claims are for.
SLOW_POLLS = 3

#: Seconds after a failed claim in which it is checked whether the claim was committed nevertheless,
#: and between two of these checks: the server may get the statement late.
LOST_CLAIMS_WITHIN = 60.0
LOST_CLAIMS_INTERVAL = 5.0

#: Seconds between two checks whether a heartbeat is stored again, so that this worker may claim.
HEARTBEAT_CHECK_INTERVAL = 0.2

#: Seconds in which the last outcomes must be stored when the process ends.
FINAL_WRITE_TIMEOUT = 5.0

#: With `--once` and no job left: how often workflows are advanced until the process ends anyway,
#: and the seconds between two times, for another process that is advancing the same ones.
ROUNDS_FOR_WORKFLOWS = 40
ROUND_FOR_WORKFLOWS = 0.05

#: A worker with handlers for more types does not report them: each heartbeat carries them.
MAX_REPORTED_TYPES = 500

#: A claimed job that found no slot for this many seconds becomes available again: the jobs before
#: it turned out to be slow.
GIVE_BACK_AFTER = MAX_SLOT_WAIT * 3

#: So many jobs may have ended whose outcomes are not stored yet, as when many fail at once. They
#: run again if the process dies, and hold back the other workers and the next steps of workflows.
MAX_UNSTORED = 1000

#: Seconds between two looks whether their number has fallen.
UNSTORED_CHECK_INTERVAL = 0.02


class Exit(IntEnum):
    """The exit code of a worker process, for the supervisor."""

    #: Stopped. Not 0: that is a handler's os._exit(0), after which the process must be replaced.
    OK = 74
    #: To be replaced: it reached its limit of jobs or memory, or a thread will not end.
    REPLACE = 75


class WorkerProcess:
    """Runs jobs until it is stopped. `on_signal` may be called from a signal handler.

    `check` returns what is wrong with the database, or raises its error: the process begins when
    nothing is.
    """

    def __init__(
        self,
        config: WorkerConfig,
        *,
        worker_id: str | None = None,
        parent: int | None = None,
        isolation: Isolation = Isolation.ANY,
        status: ProcessStatus | None = None,
        check: Callable[[], str | None] | None = None,
    ) -> None:
        self.id = worker_id or f"worker_{ids.uuid7()}"
        self.job_log = JobLog()
        self._config = config
        self._wake = WakeEvent()
        self._lifecycle = Lifecycle(config.grace, self._wake.set)
        self.on_signal = self._lifecycle.on_signal
        self._parent = parent
        self._isolation = isolation
        self._status = status
        self._check = check
        self._isolated_checked_at = float("-inf")
        # Claims and other queries of this thread rest until then, while the database is away.
        self._away_until = 0.0
        self._backoff = Backoff()
        self._lost_claims_until = self._lost_claims_due = 0.0
        self._waiting = False
        # The last claim returned as many jobs as it asked for: there may be more.
        self._may_be_more = False
        self._found_none = False
        self._notified_at = 0.0
        # Nothing woke this thread: that a job has come is not likely.
        self._is_poll = False
        # It took long to find that there is no job, so often in a row. Polls claim until then.
        self._slow_polls, self._claims_until = 0, 0.0
        self._queues = QueueSelection(config.queues, max_age=config.poll_interval.total_seconds())
        self._turns = Turns(config.order)
        self._mismatch = mismatch(config.queues, handler_queues(), config.pool)
        self._idle_since = time.monotonic()
        self._replace = False
        self._claimed = 0
        self._rounds_without_job = 0
        # With `--once`: whether no workflow was to be advanced when the process looked last.
        self._has_no_next_steps = False

    def run(self) -> Exit:
        """Work until stopped, or (`once`) until the queues are empty."""
        if not self._await_database():
            return Exit.OK
        config = self._config
        self._in_flight = JobsInFlight(self._status)
        self._batch_sizer = BatchSizer(config.threads)
        self._completer = Completer(
            self.id, self._in_flight, self.job_log, self._on_slot_free, self._on_room
        )
        self._executor = Executor(config.threads, self._completer.handler_ended)
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
            on_stuck_thread=self._on_stuck_thread,
        )
        # A process that may be killed by its job must not hold the lease of the maintenance.
        self._maintenance = MaintenanceThread(
            self.id, self.job_log, leads=self._isolation is not Isolation.ALONE
        )
        # `once` runs the jobs that are there now; a relay would never end.
        self._relays = Relays([] if config.once else relays(self.id))
        self._listener = Listener(
            config.queues,
            self._on_notify,
            self._heartbeat,
            self._on_listener_connected,
        )
        logger.info(
            "%s runs jobs of %s%s%s, %d at a time%s",
            self.id,
            ", ".join(config.queues),
            f" for the pool {config.pool}" if config.pool else "",
            f" in the database {database.alias()}" if config.databases != (None,) else "",
            config.threads,
            ": one that may have killed a worker" if self._isolation is Isolation.ALONE else "",
        )
        try:
            self._work()
        except BaseException:
            # A job may be the cause (it left no memory, for example). An orderly end would return
            # it to its queue without spending an attempt, again and again; the supervisor rescues.
            if self._status is None:
                self._end()
            raise
        self._end()
        return (
            Exit.REPLACE
            if self._replace and self._lifecycle.state is not Directive.TERMINATE
            else Exit.OK
        )

    def _await_database(self) -> bool:
        """Wait until nothing is wrong with the database. Return False if stopped before that."""
        backoff, logged = Backoff(), ""
        while self._check is not None and not self.is_stopped:
            try:
                with formatting.in_english():
                    problem = self._check()
            except Error:
                problem = ""  # It does not respond yet, which the start of the worker has logged.
            finally:
                connections.close_all()
            if problem is None:
                break
            if problem and problem != logged:
                logged = problem
                logger.error("%s The worker begins when that is done.", problem)
            self._wake.wait(backoff.pause())
            self._check_replacement()
        return not self.is_stopped

    @property
    def claimed(self) -> int:
        """How many jobs it has claimed."""
        return self._claimed

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return self._lifecycle.state is Directive.TERMINATE

    def _work(self) -> None:
        logged_at = 0.0
        once = self._config.once
        while True:
            state = self._heartbeat.state = self._lifecycle.state
            # While jobs are running, a claim that finds none says nothing: they may enqueue some.
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
                is_drained = was_idle and self._found_none
                if once and is_drained and not self._has_no_next_steps:
                    # A thread may have enqueued the next steps since the claim: only a claim after
                    # this look finds none left.
                    self._has_no_next_steps = not self._may_have_next_steps()
                    continue
                if self._replace or (once and (is_drained or state is not Directive.RUNNING)):
                    return
                if once and not was_idle:
                    continue  # The last jobs have ended since: only another claim finds none left.
            self._give_back_waiting()
            self._executor.fill()
            self.job_log.summary(self._in_flight.busy)
            self._warn_while_idle()
            self._check_isolated()
            self._check_replacement()
            self._wait()

    def _claim(self) -> bool:
        """Claim as many jobs as fit. Return whether to claim again at once."""
        self._found_none = False
        wanted = self._batch_sizer.claim_size(self._in_flight.busy)
        if self._config.max_jobs is not None:
            wanted = min(wanted, self._config.max_jobs - self._claimed)
        if wanted <= 0 or not self._heartbeat.registered or self._outcomes_pile_up():
            return False
        if time.monotonic() < self._away_until:
            return False
        most = settings().max_fetch_bytes
        left = most - sum(run.job.size for run in self._in_flight.all())
        if left <= 0 and self._in_flight.busy >= self._batch_sizer.slots:
            # Jobs that wait for a slot take memory; the running ones cannot be avoided.
            return False
        try:
            self._give_back_lost_claims()
            queues = self._queues.current()
            if self._is_poll and not self._may_find(queues):
                self._backoff.reset()
                return False
            self._is_poll = False
            jobs = (
                fetch(
                    queues,
                    count=wanted,
                    worker_id=self.id,
                    due=self._config.once,
                    isolation=self._isolation,
                    max_bytes=max(1, left),
                    turns=self._turns,
                    pool=self._config.pool,
                    registered=True,
                )
                if queues
                else []
            )
        except Error as error:
            self._database_away(error)
            self._lost_claims_until = time.monotonic() + LOST_CLAIMS_WITHIN
            self._lost_claims_due = 0.0
            return False
        self._backoff.reset()
        self._found_none = not (jobs or next_starts.unread.intersection(queues))
        self._claimed += len(jobs)
        if self._config.max_jobs is not None and self._claimed >= self._config.max_jobs:
            self._replace = True
        if jobs:
            self._idle_since = time.monotonic()
            self._rounds_without_job = 0
            self._has_no_next_steps = False
            self._dispatcher.dispatch(jobs)
            self._heartbeat.notice_jobs()
        cut = may_be_cut(left - sum(job.size for job in jobs), most)
        self._may_be_more = len(jobs) == wanted or (bool(jobs) and cut)
        return self._may_be_more

    def _may_find(self, queues: Collection[str]) -> bool:
        """Return whether to claim in a poll, which usually finds nothing."""
        began = time.monotonic()
        if len(queues) > MAX_ASKED_QUEUES or began < self._claims_until:
            return True
        if may_find(tuple(queues)):
            return True
        now = time.monotonic()
        self._slow_polls = self._slow_polls + 1 if now - began >= claim_floors.SLOW else 0
        if self._slow_polls == SLOW_POLLS:
            self._slow_polls, self._claims_until = 0, now + claim_floors.LONGEST
        # Then no job that must run alone is available either.
        self._isolated_checked_at = now
        return False

    def _give_back_lost_claims(self) -> None:
        """Return jobs whose claim was committed though its response did not arrive.

        This process would keep them until their leases expire. Called by the thread that claims:
        no claim is under way.
        """
        now = time.monotonic()
        if now >= self._lost_claims_until or now < self._lost_claims_due:
            return
        known = [(run.job.id, run.job.run) for run in self._in_flight.all()]
        count = rescue.give_back_unknown(known, worker_id=self.id)
        self._lost_claims_due = now + LOST_CLAIMS_INTERVAL
        if count:
            logger.info(
                "Available again: %s that this worker had claimed when it lost its connection.",
                number_of_jobs(count),
            )

    def _database_away(self, error: Error) -> None:
        self.job_log.database_away(error)
        connections.close_all()
        self._may_be_more = False
        self._away_until = time.monotonic() + self._backoff.pause()

    def _may_have_next_steps(self) -> bool:
        """Advance the workflows of which a job has ended. Return whether there were any.

        Another thread or process may be advancing one of them, so this waits a little for it. A
        workflow that cannot be advanced does not keep the process for ever.
        """
        try:
            if self._rounds_without_job >= ROUNDS_FOR_WORKFLOWS or not advance_due():
                return False
        except Error as error:
            self._database_away(error)
        self._rounds_without_job += 1
        self._wake.wait(ROUND_FOR_WORKFLOWS)
        return True

    def _warn_while_idle(self) -> None:
        now = time.monotonic()
        if self._mismatch is not None and now - self._idle_since >= IDLE_WARNING_INTERVAL:
            self._idle_since = now
            logger.warning("No job came in the last minutes. %s", self._mismatch)

    def _check_isolated(self) -> None:
        """Let the supervisor know of jobs that this process may not claim, as they run alone."""
        if self._isolation is not Isolation.SHARED or self._status is None:
            return
        now = time.monotonic()
        is_running = self._lifecycle.state is Directive.RUNNING
        next_check = max(self._away_until, self._isolated_checked_at + ISOLATED_CHECK_INTERVAL)
        if not is_running or now < next_check:
            return
        self._isolated_checked_at = now
        try:
            self._note_isolated(self._status)
        except Error as error:
            self._database_away(error)

    def _note_isolated(self, status: ProcessStatus) -> None:
        queues = None if ALL in self._config.queues else self._config.queues
        found = isolated_waiting(queues, limit=MAX_ISOLATED, pool=self._config.pool)
        status.note_isolated(found)

    def _give_back_waiting(self) -> None:
        waiting = self._dispatcher.revoke_waiting(GIVE_BACK_AFTER)
        if waiting:
            # Otherwise they would be claimed again at once, until the slow jobs have ended.
            self._batch_sizer.record(GIVE_BACK_AFTER)
            self._completer.give_back(waiting)

    def _wait(self) -> None:
        timeout = min(self._config.poll_interval.total_seconds(), self._lifecycle.remaining)
        if time.monotonic() - self._notified_at < notify.INTERVAL * 3:
            # A producer does not send a notification for every job: jobs right after one are found
            # by one more poll.
            timeout = min(timeout, notify.INTERVAL * 1.5)
        if self._in_flight.busy > self._config.threads:
            timeout = min(timeout, GIVE_BACK_AFTER)
        if (away := self._away_until - time.monotonic()) > 0:
            timeout = min(timeout, away)
        if self._outcomes_pile_up() or (self.is_stopped and not self._in_flight.busy):
            timeout = min(timeout, UNSTORED_CHECK_INTERVAL)
        if not self._heartbeat.registered:
            timeout = min(timeout, HEARTBEAT_CHECK_INTERVAL)
        if (next_start := next_starts.seconds()) is not None:
            timeout = min(timeout, next_start)
        self._waiting = True
        try:
            # A slot may have become free between the last claim and now, when this thread did not
            # wait and was not woken.
            can_claim = self._can_claim()
            is_woken = self._wake.wait(0.0 if can_claim else timeout)
            self._is_poll = not (can_claim or is_woken or self._config.once)
        finally:
            self._waiting = False

    def _can_claim(self) -> bool:
        return (
            self._may_be_more
            and self._lifecycle.state is Directive.RUNNING
            and not self._replace
            and self._batch_sizer.claim_size(self._in_flight.busy) > 0
            and not self._outcomes_pile_up()
        )

    def _outcomes_pile_up(self) -> bool:
        return self._in_flight.unstored >= MAX_UNSTORED

    def _is_storing(self) -> bool:
        """Whether outcomes are not stored yet and the database takes them."""
        return self._in_flight.unstored > 0 and not self._completer.is_away

    def _on_listener_connected(self) -> None:
        # The database is back. A notification does not say so: this thread may find no connection
        # while the listener has its own.
        self._away_until = 0.0

    def _on_notify(self) -> None:
        self._notified_at = time.monotonic()
        self._queues.expire()
        if self._waiting:
            self._wake.set()

    def _on_slot_free(self, seconds: float) -> None:
        self._batch_sizer.record(seconds)
        # With no job in flight it polls too: jobs that came meanwhile may have had no notification.
        if self._waiting and (not self._in_flight.busy or self._can_claim()):
            self._wake.set()

    def _on_room(self, queues: Collection[str]) -> None:
        """Jobs of queues ended that limit how many run: any worker may start one now."""
        self._wake.set()
        notify.send(database.alias(), queues)

    def _check_replacement(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            logger.warning("The supervisor has ended; this worker stops.")
            self._parent = None
            self._lifecycle.on_signal(Directive.TERMINATE)
        if self._config.max_rss_mb is not None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            if peak > self._config.max_rss_mb and not self._replace:
                logger.info("%s has used %.0f MB and will be replaced.", self.id, peak)
                self._replace = True

    def _on_stuck_thread(self) -> None:
        logger.warning(
            "%s has a thread that did not end after its job timed out or was cancelled; "
            "the process will be replaced when its other jobs have ended.",
            self.id,
        )
        self._replace = True
        self._wake.set()

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
        # After the handlers: on SQLite a handler's transaction may hold the only write lock.
        self._listener.close()
        self._relays.close()
        self._maintenance.close()
        stored = self._completer.close(FINAL_WRITE_TIMEOUT)
        self._heartbeat.close()
        rollups.flush()
        if self._isolation is Isolation.ALONE and self._claimed and self._status is not None:
            # The next one starts at once. After none was found it does not: that might go on.
            with suppress(Error):
                self._note_isolated(self._status)
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

    def _registration(self) -> Registration:
        return Registration(
            hostname=socket.gethostname()[:255],
            pid=os.getpid(),
            queues=self._config.queues,
            pool=self._config.pool,
            labels=self._config.labels,
            job_types=_reported_types(),
            concurrency=self._config.threads,
            version=f"django_ojs {VERSION}",
            release=settings().release,
            started_at=datetime.now(UTC),
            enforces_timeouts=True,
        )


def _reported_types() -> tuple[str, ...]:
    types = job_types()
    return tuple(types) if len(types) <= MAX_REPORTED_TYPES else ()
