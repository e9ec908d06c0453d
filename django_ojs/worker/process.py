"""One worker process: claims jobs, hands them to the executor, and ends well."""

import logging
import os
import resource
import socket
import time
from datetime import UTC, datetime
from enum import IntEnum

from django.db import Error, connections

from django_ojs.models.worker import Directive
from django_ojs.operations.beat import Registration
from django_ojs.operations.fetch import fetch
from django_ojs.operations.workers import removal
from django_ojs.outbox.service import Relays, relays
from django_ojs.spec import ids
from django_ojs.spec.failure import Failure
from django_ojs.storage import notify
from django_ojs.version import VERSION
from django_ojs.worker.batch_sizer import PATIENCE, Gauge
from django_ojs.worker.completer import Finisher
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.dispatcher import Intake
from django_ojs.worker.executor import Executor, interrupt
from django_ojs.worker.heartbeat import Pulse
from django_ojs.worker.in_flight import Hand, Phase
from django_ojs.worker.job_log import Report
from django_ojs.worker.lifecycle import Lifecycle
from django_ojs.worker.listener import Listener
from django_ojs.worker.maintenance import Maintenance
from django_ojs.worker.wake_event import Bell

logger = logging.getLogger("django_ojs.worker")

#: While it drains, a worker says what it waits for this often (graceful-shutdown §5.2).
TELL_EVERY = 5.0

#: What is given back at the end must be written within this many seconds.
LAST_WORDS = 5.0

#: A claimed job that found no slot for this long goes back: the jobs before it turned out to be
#: slow.
STRANDED_AFTER = PATIENCE * 3


class Exit(IntEnum):
    """How a worker process ends."""

    #: Told to end. Not 0: a handler's os._exit(0) says that, and its process has to be replaced.
    OK = 74
    #: Replace it: it did its number of jobs, grew too large, or has a thread that will not end.
    REPLACE = 75


class WorkerProcess:
    """Runs jobs until it is told to stop. `signalled` may be called from a signal handler."""

    def __init__(
        self, config: WorkerConfig, *, worker_id: str | None = None, parent: int | None = None
    ) -> None:
        self.id = worker_id or f"worker_{ids.uuid7()}"
        self.report = Report()
        self._config = config
        self._wake = Bell()
        self._life = Lifecycle(config.grace, self._look)
        self.signalled = self._life.signalled
        self._parent = parent
        self._waiting = False
        # The last claim brought all that was asked for: there may be more.
        self._more = False
        self._notified_at = 0.0
        self._worn_out = False
        self._claimed = 0

    def run(self) -> Exit:
        """Work until told to stop, or (`once`) until the queues are empty. Return how it ended."""
        config = self._config
        self._hand = Hand()
        self._gauge = Gauge(config.threads)
        self._finisher = Finisher(self.id, self._hand, self.report, self._slot_freed)
        self._executor = Executor(config.threads, self._finisher.answer)
        self._intake = Intake(
            self.id, self._hand, self._executor, self._finisher, self.report, config.threads
        )
        self._pulse = Pulse(
            self.id,
            self._hand,
            self._finisher,
            self.report,
            interval=config.heartbeat_interval,
            registration=self._registration(),
            directed=self._life.directed,
            stuck=self._wear_out,
        )
        self._maintenance = Maintenance(self.id, self.report)
        # What is there now is this site's jobs; a relay has no end of its own.
        self._relays = Relays([] if config.once else relays(self.id))
        self._listener = Listener(config.queues, self._notified, self._pulse.attach)
        logger.info("%s works %s, %d at a time", self.id, ", ".join(config.queues), config.threads)
        try:
            self._work()
        finally:
            self._end()
        return (
            Exit.REPLACE
            if self._worn_out and self._life.state is not Directive.TERMINATE
            else Exit.OK
        )

    def _work(self) -> None:
        told = 0.0
        while True:
            state = self._pulse.state = self._life.state
            if state is Directive.TERMINATE:
                self._finisher.unstarted(self._intake.take_waiting())
                if not self._hand.busy or self._life.expired:
                    return
                if time.monotonic() - told >= TELL_EVERY:
                    told = time.monotonic()
                    logger.info("Stopping: waiting for %d running jobs", self._hand.busy)
            elif state is Directive.RUNNING and not self._worn_out and self._claim():
                continue
            elif (self._config.once or self._worn_out) and not len(self._hand):
                return
            self._give_back_stranded()
            self._executor.fill()
            self.report.progress(self._hand.busy)
            self._check_wear()
            self._wait()

    def _claim(self) -> bool:
        """Claim what fits. Return whether to look again at once."""
        wanted = self._gauge.wanted(self._hand.busy)
        if self._config.max_jobs is not None:
            wanted = min(wanted, self._config.max_jobs - self._claimed)
        if wanted <= 0 or not self._pulse.registered:
            return False
        try:
            jobs = fetch(
                self._config.queues, count=wanted, worker_id=self.id, due=self._config.once
            )
        except Error as error:
            self.report.database_away(error)
            connections.close_all()
            return False
        self._claimed += len(jobs)
        if jobs:
            self._intake.accept(jobs)
        self._more = len(jobs) == wanted
        return self._more

    def _give_back_stranded(self) -> None:
        stranded = self._intake.take_waiting(STRANDED_AFTER)
        if stranded:
            # Or they would be claimed again at once, and again, until the slow ones are done.
            self._gauge.saw(STRANDED_AFTER)
            self._finisher.unstarted(stranded)

    def _wait(self) -> None:
        timeout = min(self._config.poll_interval.total_seconds(), self._life.left)
        if time.monotonic() - self._notified_at < notify.INTERVAL * 3:
            # A producer does not announce every job; what came right after an announcement is found
            # by one more look.
            timeout = min(timeout, notify.INTERVAL * 1.5)
        if self._hand.busy > self._config.threads:
            timeout = min(timeout, STRANDED_AFTER)
        self._waiting = True
        try:
            # A slot may have come free between the last look and now, when nobody was waiting to be
            # woken.
            self._wake.wait(0.0 if self._refillable() else timeout)
        finally:
            self._waiting = False

    def _refillable(self) -> bool:
        return (
            self._more
            and self._life.state is Directive.RUNNING
            and not self._worn_out
            and self._gauge.wanted(self._hand.busy) > 0
        )

    def _look(self) -> None:
        self._wake.ring()

    def _notified(self) -> None:
        self._notified_at = time.monotonic()
        if self._waiting:
            self._wake.ring()

    def _slot_freed(self, seconds: float) -> None:
        self._gauge.saw(seconds)
        # With nothing in hand it looks again too: what came while it was busy may not have been
        # announced.
        if self._waiting and (not self._hand.busy or self._refillable()):
            self._wake.ring()

    def _check_wear(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            logger.warning("The supervisor is gone; this worker stops.")
            self._parent = None
            self._life.signalled(Directive.TERMINATE)
        if self._config.max_jobs is not None and self._claimed >= self._config.max_jobs:
            self._worn_out = True
        if self._config.max_rss_mb is not None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            if peak > self._config.max_rss_mb and not self._worn_out:
                logger.info("%s has used %.0f MB and will be replaced.", self.id, peak)
                self._worn_out = True

    def _wear_out(self) -> None:
        logger.warning(
            "%s has a thread that does not end though its job's time is up; "
            "the process will be replaced once its other jobs are done.",
            self.id,
        )
        self._worn_out = True
        self._look()

    def _end(self) -> None:
        self._finisher.unstarted(self._intake.take_waiting())
        failure = Failure(type="shutdown", message="The worker shut down before the job was done.")
        for run in self._hand.in_phase(Phase.RUNNING):
            if run.take(Phase.RUNNING, interrupt):
                self._hand.free()
                self._finisher.requeued(run, failure)
        self._executor.close()
        # After the handlers: where there is one lock, a handler's transaction may hold it.
        self._listener.close()
        self._relays.close()
        self._maintenance.close()
        written = self._finisher.close(LAST_WORDS)
        self._pulse.close()
        if written:
            try:
                removal.remove(
                    self.id,
                    reason="signal" if self._life.ended_by_signal else "shutdown",
                    jobs_completed=self.report.done,
                )
            except Error:
                logger.debug("The worker was not deregistered; its silence will say so.")
        logger.info("%s stopped: %d done, %d failed", self.id, self.report.done, self.report.bad)
        connections.close_all()

    def _registration(self) -> Registration:
        return Registration(
            hostname=socket.gethostname()[:255],
            pid=os.getpid(),
            queues=self._config.queues,
            labels=self._config.labels,
            concurrency=self._config.threads,
            version=f"django_ojs {VERSION}",
            started_at=datetime.now(UTC),
        )
