"""The log of a worker: one line for each job, and a summary every few seconds."""

import logging
import threading
import time
from typing import Any

from django.db import InternalError

from django_ojs.models import Job
from django_ojs.spec.failure import Failure
from django_ojs.spec.states import State
from django_ojs.worker.in_flight import Run

logger = logging.getLogger("django_ojs.worker")

#: Seconds between two summaries.
SUMMARY_INTERVAL = 5.0

#: Seconds before the same warning is logged again.
REPEAT_AFTER = 30.0


class JobLog:
    """The log lines and the counts of one process.

    They have names and times only, never arguments, results or messages of errors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.completed_count = self.failed_count = 0
        self._warned_at: dict[str, float] = {}
        self._summary_at, self._summary_count = time.monotonic(), 0

    def completed(self, run: Run, seconds: float) -> None:
        with self._lock:
            self.completed_count += 1
        if logger.isEnabledFor(logging.INFO):
            logger.info(
                "%s %s completed in %s",
                run.job.type,
                run.job.id,
                duration(seconds),
                extra=_fields(run, "completed", seconds),
            )

    def failed(
        self, run: Run, failure: Failure, job: Job, seconds: float, cause: BaseException | None
    ) -> None:
        """Log a job that failed. Its traceback is logged at DEBUG, and is in the stored error."""
        with self._lock:
            self.failed_count += 1
        if job.state == State.RETRYABLE:
            level = logging.WARNING
            what = f"attempt {run.job.attempt} of {job.max_attempts}"
            what += f", next attempt at {job.due_at:%H:%M:%S}"
        else:
            level = logging.ERROR
            what = "dead letter" if job.dead_letter else "discarded"
            what += f" after attempt {run.job.attempt}"
        logger.log(
            level,
            "%s %s failed in %s: %s (%s)",
            run.job.type,
            run.job.id,
            duration(seconds),
            failure.type,
            what,
            extra=_fields(run, "timeout" if failure.type == "timeout" else "failed", seconds)
            | {"error": failure.type},
        )
        if cause is not None:
            logger.debug("Traceback of %s", run.job.id, exc_info=cause)

    def claim_lost(self, run: Run) -> None:
        """Log a run whose job was cancelled, or claimed by another worker."""
        logger.warning(
            "%s %s: its claim is gone (cancelled, or its lease expired and another worker "
            "claimed it); the result of this run was discarded",
            run.job.type,
            run.job.id,
            extra=_fields(run, "lost", time.monotonic() - run.started),
        )

    def unknown_type(self, run_type: str) -> None:
        """Warn of a job type that has no handler here."""
        self.warn_once(
            f"type {run_type}",
            f"No handler for the job type {run_type!r} here: its jobs are held back and offered "
            "again later, without spending an attempt. Is a deployment under way, or is the app "
            "with its jobs.py missing from INSTALLED_APPS?",
        )

    def database_away(self, error: Exception) -> None:
        """Warn that the database cannot be reached, or is read-only."""
        is_reached = isinstance(error, InternalError)
        what = "cannot be written to" if is_reached else "does not respond"
        self.warn_once(
            "database",
            f"The database {what} ({type(error).__name__}); trying again. What this worker has to "
            "store is kept.",
        )

    def warn_once(self, key: str, message: str) -> None:
        """Log a warning, unless one with the same key was logged in the last 30 seconds."""
        now = time.monotonic()
        with self._lock:
            if now - self._warned_at.get(key, -REPEAT_AFTER) < REPEAT_AFTER:
                return
            self._warned_at[key] = now
        logger.warning(message)

    def summary(self, in_flight: int) -> None:
        """Log the counts and the rate, when it is time and there was work."""
        now = time.monotonic()
        if now - self._summary_at < SUMMARY_INTERVAL:
            return
        ended = self.completed_count + self.failed_count
        if ended != self._summary_count or in_flight:
            rate = (ended - self._summary_count) / (now - self._summary_at)
            logger.info(
                "%d completed, %d failed, %d in flight, %.0f jobs/s",
                self.completed_count,
                self.failed_count,
                in_flight,
                rate,
            )
        self._summary_at, self._summary_count = now, ended


def duration(seconds: float) -> str:
    """Format a duration in milliseconds, seconds or minutes."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min"


def _fields(run: Run, status: str, seconds: float) -> dict[str, Any]:
    # The field names of ojs-middleware §8.1.1.
    return {
        "job_id": str(run.job.id),
        "job_type": run.job.type,
        "queue": run.job.queue,
        "attempt": run.job.attempt,
        "duration_ms": round(seconds * 1000, 3),
        "status": status,
    }
