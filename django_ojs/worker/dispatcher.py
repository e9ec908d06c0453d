"""From a claimed job to a run that waits for its slot, and back when the wait is too long."""

import time
from datetime import timedelta

from django_ojs.conf import settings
from django_ojs.context import JobContext
from django_ojs.handlers import get_handler
from django_ojs.operations import beat
from django_ojs.spec.failure import Failure
from django_ojs.storage.claims import Claimed
from django_ojs.worker import progress
from django_ojs.worker.completer import Finisher
from django_ojs.worker.executor import Executor
from django_ojs.worker.in_flight import Hand, Phase, Run
from django_ojs.worker.job_log import Report


class Intake:
    """Takes claimed jobs in. Called from the claiming thread only."""

    def __init__(
        self,
        worker_id: str,
        hand: Hand,
        executor: Executor,
        finisher: Finisher,
        report: Report,
        slots: int,
    ) -> None:
        self._worker_id = worker_id
        self._hand = hand
        self._executor = executor
        self._finisher = finisher
        self._report = report
        self._slots = slots
        self._default_timeout = settings().default_timeout.total_seconds()

    def accept(self, jobs: list[Claimed]) -> None:
        """Hand jobs to their handlers; put those aside that have none here."""
        runs: list[Run] = []
        strangers: list[Run] = []
        for job in jobs:
            handler = get_handler(job.type)
            context = JobContext(
                job,
                is_async=handler is not None and handler.is_async,
                heartbeat=self._heartbeat,
                report=progress.report,
            )
            run = Run(
                job,
                handler,
                context,
                job.timeout_ms / 1000 if job.timeout_ms else self._default_timeout,
            )
            (runs if handler is not None else strangers).append(run)
        self._hand.add(runs + strangers)
        for run in strangers:
            self._take(run)
            self._report.unknown_type(run.job.type)
            self._finisher.held(
                run,
                Failure(
                    type="unknown_job_type", message="The worker has no handler for this job type."
                ),
            )
        self._executor.submit(runs)

    def take_waiting(self, older_than: float = 0.0) -> list[Run]:
        """Take the runs that have waited longer than this, in seconds, for a slot."""
        if older_than and self._hand.busy <= self._slots:
            return []
        before = time.monotonic() - older_than
        return [
            run
            for run in self._hand.in_phase(Phase.WAITING)
            if run.claimed_at <= before and self._take(run)
        ]

    def _take(self, run: Run) -> bool:
        if not run.take(Phase.WAITING):
            return False
        self._hand.free()
        return True

    def _heartbeat(self, job: Claimed, extend: timedelta | None) -> bool:
        return beat.extend(self._worker_id, job.id, extend)
