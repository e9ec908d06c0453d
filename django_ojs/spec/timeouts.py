"""How long a job may wait, and how long one of its runs may take (ojs-timeouts §5)."""

from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from django_ojs.spec.failure import Failure
from django_ojs.spec.times import elapsed

_ENQUEUE_TTL: Final = ("enqueue_ttl", "enqueue_ttl_expired", "The job did not start within {}.")
_TOTAL: Final = ("total", "total_timeout", "The job did not end within {}.")


class TimedJob(Protocol):
    """The attributes of a job that limit its time."""

    @property
    def options(self) -> Any: ...
    @property
    def timeout_ms(self) -> int | None: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def expires_at(self) -> datetime | None: ...


def limit_of(job: TimedJob, default: timedelta) -> timedelta:
    """Return how long the run of an active job may take."""
    limit = timedelta(milliseconds=job.timeout_ms) if job.timeout_ms else default
    ends = total_ends(job)
    if ends is None or job.started_at is None:
        return limit
    return max(min(limit, elapsed(job.started_at, ends)), timedelta(milliseconds=1))


def total_ends(job: TimedJob) -> datetime | None:
    """Return when the `total_timeout` of a job ends."""
    # Every job with such a timeout has `expires_at`, so the JSON of other jobs need not be read.
    if job.expires_at is None or (total := job.options.get("total_timeout")) is None:
        return None
    return job.created_at + timedelta(seconds=total)


def failure_of(job: TimedJob, default: timedelta) -> Failure:
    """Return the error of a job whose run took longer than `limit_of` says."""
    own = timedelta(milliseconds=job.timeout_ms) if job.timeout_ms else default
    if job.started_at is None or (limit := limit_of(job, default)) >= own:
        return Failure(type="timeout", message="The job ran longer than its timeout.")
    return total_failure(job, job.started_at + limit)


def total_failure(job: TimedJob, now: datetime) -> Failure:
    """Return the error of a job whose `total_timeout` has ended: it is not retried."""
    return _failure(_TOTAL, job, "total_timeout", now)


def expiry_of(job: TimedJob, now: datetime) -> Failure | None:
    """Return the error of a job that expired by a timeout; None if by its `expires_at`."""
    # `expires_at` is the earliest of the limits, which databases round to the millisecond.
    assert job.expires_at is not None
    latest = job.expires_at + timedelta(milliseconds=1)
    for kind, option in ((_ENQUEUE_TTL, "enqueue_ttl"), (_TOTAL, "total_timeout")):
        seconds = job.options.get(option)
        if seconds is not None and job.created_at + timedelta(seconds=seconds) <= latest:
            return _failure(kind, job, option, now)
    return None


def _failure(kind: tuple[str, str, str], job: TimedJob, option: str, now: datetime) -> Failure:
    name, type_, text = kind
    limit = job.options[option]
    details = {
        "timeout_kind": name,
        "limit_seconds": limit,
        "elapsed_seconds": int(elapsed(job.created_at, now).total_seconds()),
    }
    message = text.format(f"its {option} of {limit} s")
    return Failure(type=type_, message=message, retryable=False, details=details)
