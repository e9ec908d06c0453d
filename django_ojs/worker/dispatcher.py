"""Make runs of claimed jobs, give them to the executor, and revoke those that wait too long."""

import time
from datetime import timedelta

from django_ojs.conf import settings
from django_ojs.context import JobContext
from django_ojs.handlers import get_handler
from django_ojs.hooks import registry
from django_ojs.operations import beat
from django_ojs.spec.failure import UNKNOWN_JOB_TYPE, Failure
from django_ojs.spec.timeouts import limit_of
from django_ojs.storage.claimed_job import Claimed
from django_ojs.worker import progress
from django_ojs.worker.completer import Completer
from django_ojs.worker.executor import Executor
from django_ojs.worker.in_flight import JobsInFlight, Phase, Run
from django_ojs.worker.job_log import JobLog

_UNKNOWN_TYPE = Failure(
    type=UNKNOWN_JOB_TYPE, message="The worker has no handler for this job type."
)


class Dispatcher:
    """Gives claimed jobs to the executor. Only the claiming thread may call it."""

    def __init__(
        self,
        worker_id: str,
        in_flight: JobsInFlight,
        executor: Executor,
        completer: Completer,
        job_log: JobLog,
        slots: int,
    ) -> None:
        self._worker_id = worker_id
        self._in_flight = in_flight
        self._executor = executor
        self._completer = completer
        self._job_log = job_log
        self.slots = slots
        status = in_flight.status
        self._on_begin = None if status is None else status.started
        self._default_timeout = settings().default_timeout

    def dispatch(self, jobs: list[Claimed], asked_at: float | None = None) -> int:
        """Give jobs to their handlers; hold back those of unknown types, and return how many.

        `asked_at` is the time when the claim, and with it the leases, began.
        """
        runs: list[Run] = []
        unknown: list[Run] = []
        # What is the same for all of them is looked up once: this loop runs for every job.
        extend, extensions = self._extend, registry.context
        for job in jobs:
            handler = get_handler(job.type)
            context = JobContext(
                job,
                is_async=handler is not None and handler.is_async,
                heartbeat=extend,
                report=progress.report,
                extensions=extensions,
            )
            run = Run(
                job,
                handler,
                context,
                limit_of(job, self._default_timeout).total_seconds(),
                self._on_begin,
                asked_at,
            )
            (runs if handler is not None else unknown).append(run)
        self._in_flight.add(runs + unknown)
        for run in unknown:
            self._revoke(run)
            self._job_log.unknown_type(run.job.type)
        self._completer.hold(unknown, _UNKNOWN_TYPE)
        self._executor.submit(runs)
        return len(unknown)

    def revoke_waiting(self, longer_than: float = 0.0) -> list[Run]:
        """Revoke and return the runs that have waited more than this many seconds for a slot."""
        if longer_than and self._in_flight.busy <= self.slots:
            return []
        before = time.monotonic() - longer_than
        return [
            run
            for run in self._in_flight.in_phase(Phase.WAITING)
            if run.claimed_at <= before and self._revoke(run)
        ]

    def _revoke(self, run: Run) -> bool:
        if not run.revoke(Phase.WAITING):
            return False
        self._in_flight.release_slot()
        return True

    def _extend(self, job: Claimed, extend: timedelta | None) -> bool:
        return beat.extend(self._worker_id, job.id, extend)
