"""What a worker says: a line a job, and now and then how it goes."""

import logging
import threading
import time
from typing import Any

from django_ojs.models import Job
from django_ojs.spec.failure import Failure
from django_ojs.spec.states import State
from django_ojs.worker.in_flight import Run

logger = logging.getLogger("django_ojs.worker")

#: Seconds between two lines that say how it goes.
PROGRESS_EVERY = 5.0

#: The same trouble is told once in this many seconds.
REPEAT_AFTER = 30.0


class Report:
    """Log lines and counts of one process.

    Arguments, results and messages' origins are never in them, only names and times.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.done = self.bad = 0
        self._told: dict[str, float] = {}
        self._since, self._then = time.monotonic(), 0

    def completed(self, run: Run, seconds: float) -> None:
        """A job succeeded."""
        with self._lock:
            self.done += 1
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
        """A job failed. Its traceback goes to the log at DEBUG, and into the stored error."""
        with self._lock:
            self.bad += 1
        if job.state == State.RETRYABLE:
            level = logging.WARNING
            what = f"attempt {run.job.attempt} of {job.max_attempts}"
            what += f", runs again at {job.due_at:%H:%M:%S}"
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

    def lost(self, run: Run) -> None:
        """A run ended whose job is no longer its own."""
        logger.warning(
            "%s %s ended, but its claim is gone (cancelled, or taken over after its reservation); "
            "its answer was not kept",
            run.job.type,
            run.job.id,
            extra=_fields(run, "lost", time.monotonic() - run.started),
        )

    def unknown_type(self, run_type: str) -> None:
        """A job came whose type has no handler here."""
        self.once(
            f"type {run_type}",
            f"No handler for the job type {run_type!r} here: its jobs are held back and handed out "
            "again, unspent. Is a deployment under way, or is the app with its jobs.py missing "
            "from INSTALLED_APPS?",
        )

    def database_away(self, error: Exception) -> None:
        """The database did not answer; work waits."""
        self.once(
            "database", f"The database does not answer ({type(error).__name__}); trying again."
        )

    def once(self, key: str, message: str) -> None:
        """Warn, but not again and again."""
        now = time.monotonic()
        with self._lock:
            if now - self._told.get(key, -REPEAT_AFTER) < REPEAT_AFTER:
                return
            self._told[key] = now
        logger.warning(message)

    def progress(self, in_hand: int) -> None:
        """Say how it goes, if something went."""
        now = time.monotonic()
        if now - self._since < PROGRESS_EVERY:
            return
        done = self.done + self.bad
        if done != self._then or in_hand:
            rate = (done - self._then) / (now - self._since)
            logger.info(
                "%d done, %d failed, %d in hand, %.0f jobs/s", self.done, self.bad, in_hand, rate
            )
        self._since, self._then = now, done


def duration(seconds: float) -> str:
    """Say how long something took, in the unit a person would use."""
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
