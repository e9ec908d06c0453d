"""The log of a worker: one line for each job, and a summary every few seconds."""

import logging
import threading
import time
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any, Final
from uuid import UUID

from django.db import InternalError
from django.utils import timezone

from django_ojs.conf import settings
from django_ojs.context import log_fields
from django_ojs.models import Job
from django_ojs.operations.fail import Ended
from django_ojs.spec.failure import Failure, HandlerResponse, ResultRejected, from_project
from django_ojs.spec.states import State
from django_ojs.storage import database, lock_holders
from django_ojs.worker.exception_copies import shortened, without_messages
from django_ojs.worker.in_flight import Run

logger = logging.getLogger("django_ojs.worker")

#: Seconds between two summaries.
SUMMARY_INTERVAL = 5.0

#: A longer error message is cut in the log. More of it is stored.
MAX_MESSAGE_CHARACTERS = 500

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

#: Seconds before the same warning is logged again.
REPEAT_AFTER = 30.0
#: How many warnings are remembered before all of them may be logged again.
_MOST_REMEMBERED: Final = 10_000

_STOPPED_CURE: Final = (
    "Raise the timeouts of the worker's database role, or look for what makes changes of the table "
    "ojs_job slow: a trigger, or a transaction that keeps its locks."
)


class JobLog:
    """The log lines and the counts of one process.

    The lines have names, times and errors, never arguments or results. The messages of errors and
    the tracebacks can be left out (LOG_ERROR_MESSAGES, LOG_TRACEBACKS).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.completed_count = self.failed_count = 0
        self._warned_at: dict[str, float] = {}
        self._summary_at, self._summary_count = time.monotonic(), 0

    def completed(self, runs: Collection[tuple[Run, float]]) -> None:
        """Log the jobs that were completed, with the seconds that each ran."""
        with self._lock:
            self.completed_count += len(runs)
        if not logger.isEnabledFor(logging.INFO):
            return
        for run, seconds in runs:
            logger.info(
                "%s %s completed in %s",
                run.job.type,
                run.job.id,
                duration(seconds),
                extra=_fields(run, "completed", seconds) | {"state": State.COMPLETED.value},
            )

    def failed(
        self,
        run: Run,
        failure: Failure,
        job: Job | Ended,
        seconds: float,
        cause: BaseException | None,
    ) -> None:
        """Log a job that failed, with the traceback of the exception that is the cause.

        A handler that raised ojs.Retry, ojs.Discard or ojs.DeadLetter made a decision, and no
        traceback is logged.
        """
        if job.state == State.AVAILABLE and cause is not None and database.is_conflict(cause):
            logger.warning(
                "%s %s conflicted with another transaction after %s, and runs again without "
                "spending an attempt: %s",
                run.job.type,
                run.job.id,
                duration(seconds),
                _error(failure),
                extra=_fields(run, "returned", seconds)
                | {"error": failure.type, "state": job.state},
            )
            return
        with self._lock:
            self.failed_count += 1
        if job.state == State.RETRYABLE:
            level = logging.WARNING
            # Claims that were given back spent no attempt.
            what = f"attempt {job.spent} of {job.max_attempts}"
            if failure.pause:  # Of its limit key, if it has one.
                what = "no attempt is spent"
            # The time is in the time zone of the log's own times, and has the date unless it is
            # today's.
            zone = timezone.get_default_timezone()
            due = timezone.localtime(job.due_at, zone)
            is_today = due.date() == timezone.localdate(timezone=zone)
            what += f", next attempt at {due:{'%H:%M:%S' if is_today else '%Y-%m-%d %H:%M:%S'}}"
        elif job.state == State.AVAILABLE:
            level = logging.WARNING
            what = "beside other jobs, without spending an attempt: available again"
        else:
            level = logging.ERROR
            what = "dead letter" if job.dead_letter else "discarded"
            what += f" after attempt {job.spent}"
        logger.log(
            level,
            "%s %s failed in %s: %s (%s)",
            run.job.type,
            run.job.id,
            duration(seconds),
            _error(failure),
            what,
            exc_info=_exc_info(cause),
            extra=_fields(run, "timeout" if failure.type == "timeout" else "failed", seconds)
            | {"error": failure.type, "state": job.state},
        )

    def claim_lost(self, run: Run) -> None:
        """Log a run that lost its claim, such as to a cancellation or to another worker."""
        logger.warning(
            "%s %s: its claim is gone (cancelled; or its lease expired and another worker claimed "
            "it; or a failover of the database lost the claim, and the job runs again); the result "
            "of this run was discarded",
            run.job.type,
            run.job.id,
            extra=_fields(run, "lost", time.monotonic() - run.started),
        )

    def failed_after_commit(self, run: Run, error: BaseException) -> None:
        """Log that a function of on_commit raised, after the job was completed."""
        failure = Failure.from_exception(error)
        logger.error(
            "%s %s is completed, and then a function that its handler gave to on_commit failed "
            "(those after it did not run): %s",
            run.job.type,
            run.job.id,
            _error(failure),
            exc_info=_exc_info(error),
            extra=_fields(run, "completed", time.monotonic() - run.started)
            | {"error": failure.type, "state": State.COMPLETED.value},
        )

    def stopped_after_commit(self, run: Run) -> None:
        """Log that a function of on_commit was interrupted, after the job was completed."""
        seconds = time.monotonic() - run.started
        logger.error(
            "%s %s is completed, and a function that its handler gave to on_commit was stopped "
            "after %s: at the timeout of the job, or because the worker stops",
            run.job.type,
            run.job.id,
            duration(seconds),
            extra=_fields(run, "completed", seconds) | {"state": State.COMPLETED.value},
        )

    def unknown_type(self, run_type: str) -> None:
        """Warn of a job type that has no handler here."""
        self.warn_once(
            f"type {run_type}",
            f"No handler for the job type {run_type!r} here: its jobs are held back and offered "
            "again later, without spending an attempt. Is a deployment under way, is the app with "
            "its jobs.py or tasks.py missing from INSTALLED_APPS, is the handler in a module that "
            "no jobs.py imports, or is a task in a module that OPTIONS['modules'] of TASKS does "
            "not name?",
        )

    def database_away(self, error: Exception) -> None:
        """Warn that the database cannot be reached, or is read-only."""
        is_reached = isinstance(error, InternalError)
        what = "cannot be written to" if is_reached else "does not respond"
        self.warn_once(
            "database",
            f"The database {what} ({database.unavailable_reason(error)}); trying again. What this "
            "worker has to store is kept.",
        )

    def heartbeat_undone(self, extension: str, error: Exception) -> None:
        """Warn that an extension keeps the heartbeats of this worker from being stored."""
        self.warn_once(
            "heartbeat undone",
            f"The extension {extension} undoes the heartbeats of this worker "
            f"({type(error).__name__}); trying again. Until one is stored, no job is claimed.",
        )

    def group_stopped(self, number: int, error: Exception) -> None:
        """Warn that the server stopped a statement that stores many outcomes together."""
        self.warn_once(
            "group stopped",
            f"The outcomes of {number_of_jobs(number)} could not be stored together "
            f"({database.unavailable_reason(error)}): fewer at once are tried. {_STOPPED_CURE}",
        )

    def outcome_deferred(self, run: Run, pause: float, error: Exception) -> None:
        """Warn that the server stopped the statement that stores one outcome."""
        self.warn_once(
            "outcome deferred",
            f"The outcome of {run.job.type} {run.job.id} could not be stored "
            f"({database.unavailable_reason(error)}): it is kept and tried again in "
            f"{duration(pause)}, and others are stored meanwhile. {_STOPPED_CURE}",
        )

    def locked(self, runs: Sequence[Run], *, is_last: bool = False) -> None:
        """Warn that another session has locked the rows of jobs that have ended here.

        `is_last` says that their outcomes are lost, because the process ends.
        """
        first = runs[0]
        what = f"The outcome of {first.job.type} {first.job.id}"
        if len(runs) > 1:
            what = f"The outcomes of {number_of_jobs(len(runs))}, such as {first.job.id},"
        then = "tried again until the lock ends; others are stored meanwhile."
        if is_last:
            then = "lost, because this process ends: a job without an outcome runs again."
        logger.log(
            logging.ERROR if is_last else logging.WARNING,
            "%s cannot be stored: a row is locked by %s. It is %s",
            what,
            lock_holders.holder_of([run.job.id for run in runs]),
            then,
        )

    def leases_locked(self, keys: Collection[UUID]) -> None:
        """Warn that leases cannot be extended, because another session has locked the rows."""
        first = min(keys)
        self.warn_once(
            "leases locked",
            f"The leases of {number_of_jobs(len(keys))}, such as {first}, cannot be extended, "
            "because another session keeps the rows locked; they are tried again.",
        )

    def warn_once(self, key: str, message: str) -> None:
        """Log a warning, unless one with the same key was logged in the last 30 seconds."""
        now = time.monotonic()
        with self._lock:
            if now - self._warned_at.get(key, -REPEAT_AFTER) < REPEAT_AFTER:
                return
            if len(self._warned_at) > _MOST_REMEMBERED:
                self._warned_at.clear()
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


def number_of_jobs(number: int, kind: str = "") -> str:
    """Format a number of jobs: "1 running job", "2 running jobs"."""
    return " ".join(filter(None, (str(number), kind, "job" if number == 1 else "jobs")))


def duration(seconds: float) -> str:
    """Format a duration in milliseconds, seconds or minutes."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min"


def _error(failure: Failure) -> str:
    message = " ".join(failure.message.split())
    if not message or not settings().log_error_messages:
        return failure.type
    if len(message) > MAX_MESSAGE_CHARACTERS:
        message = message[: MAX_MESSAGE_CHARACTERS - 1] + "…"
    return f"{failure.type}: {message}"


def _exc_info(cause: BaseException | None) -> ExcInfo | None:
    """Return the exception with its traceback, from the first frame of the project's code."""
    # When a result was rejected, no frame is the project's: the message names the handler.
    if cause is None or isinstance(cause, HandlerResponse | ResultRejected):
        return None
    if not settings().log_tracebacks:
        return None
    cause = shortened(cause) if settings().log_error_messages else without_messages(cause)
    return type(cause), cause, from_project(cause.__traceback__)


def _fields(run: Run, status: str, seconds: float) -> dict[str, Any]:
    # The field names of ojs-middleware §8.1.1.
    return {
        **log_fields(run.context),
        # An error tracker that has reported the exception ignores this record.
        "reported": run.context.metadata.get("reported", False),
        "duration_ms": round(seconds * 1000, 3),
        "status": status,
    }
