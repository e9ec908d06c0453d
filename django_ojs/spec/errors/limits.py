"""OJS-6xxx: slow down (error-catalog §4.6)."""

from typing import Final, Self

from django_ojs.spec.errors.base import OJSError

#: Seconds to wait before another try, when nothing says how fast the queue is worked.
RETRY_AFTER: Final = 5


class RateLimited(OJSError):
    """The caller sends too much."""

    code, canonical, number, status = "rate_limited", "RATE_LIMITED", "OJS-6000", 429
    retryable = True


class QueueFull(OJSError):
    """The queue is at its bound (backpressure §4); details: queue, depth, bound, strategy."""

    code = canonical = "QUEUE_FULL"
    number, status, retryable = "OJS-6001", 429, True

    #: More than the queue may hold at all: waiting does not help.
    can_never_fit: bool = False
    #: Jobs and bytes for which there was no room.
    needs: tuple[int, int] = (1, 0)

    @classmethod
    def at(cls, queue: str, *, depth: int, bound: int, strategy: str, busy: bool = False) -> Self:
        """Say that `queue` holds `depth` of the `bound` it may hold, in jobs or in bytes.

        `busy`: transactions that are open may fill it, and did not end in time.
        """
        told = f"queue {queue} is full: {depth} of {bound}"
        if busy:
            told = f"queue {queue} may be full: {depth} of {bound}, and transactions are open"
        return cls(
            told, details={"queue": queue, "depth": depth, "bound": bound, "strategy": strategy}
        )

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return str(self.details["queue"])

    @property
    def depth(self) -> int:
        """What waits there."""
        return int(self.details["depth"])

    @property
    def bound(self) -> int:
        """What may wait there."""
        return int(self.details["bound"])

    @property
    def retry_after(self) -> int:
        """Seconds after which another try makes sense."""
        return int(self.details.get("retry_after", RETRY_AFTER))


class ConcurrencyLimited(OJSError):
    """Too many jobs of this kind run already."""

    code, number, status, retryable = "CONCURRENCY_LIMITED", "OJS-6002", 429, True


class BackpressureApplied(OJSError):
    """The server protects its database."""

    code, number, status, retryable = "BACKPRESSURE_APPLIED", "OJS-6003", 429, True
