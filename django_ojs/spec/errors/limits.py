"""OJS-6xxx: slow down (error-catalog §4.6)."""

from typing import Self

from django_ojs.spec.errors.base import OJSError


class RateLimited(OJSError):
    """The caller sends too much."""

    code, canonical, number, status = "rate_limited", "RATE_LIMITED", "OJS-6000", 429
    retryable = True


class QueueFull(OJSError):
    """The queue is at its bound (backpressure §4); details: queue, depth, bound, strategy."""

    code = canonical = "QUEUE_FULL"
    number, status, retryable = "OJS-6001", 429, True

    @classmethod
    def at(cls, queue: str, *, depth: int, bound: int, strategy: str) -> Self:
        """Say that `queue` holds `depth` waiting jobs of the `bound` it may hold."""
        return cls(
            f"queue {queue} is full: {depth} jobs are waiting and its bound is {bound}",
            details={"queue": queue, "depth": depth, "bound": bound, "strategy": strategy},
        )


class ConcurrencyLimited(OJSError):
    """Too many jobs of this kind run already."""

    code, number, status, retryable = "CONCURRENCY_LIMITED", "OJS-6002", 429, True


class BackpressureApplied(OJSError):
    """The server protects its database."""

    code, number, status, retryable = "BACKPRESSURE_APPLIED", "OJS-6003", 429, True
