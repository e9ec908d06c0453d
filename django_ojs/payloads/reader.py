"""The bytes of a payload as they come: counted, timed, and checked at their end."""

import hashlib
import io
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from django_ojs.payloads.reference import Reference
from django_ojs.spec.errors import ChecksumMismatch, OJSError, PayloadRefused, PayloadUnavailable

CHUNK: Final = 256 * 1024


class Source(Protocol):
    """Where bytes come from. Raises PayloadUnavailable when they do not."""

    def read(self, size: int, /) -> bytes:
        """Return some bytes, at most `size`; none at the end."""

    def close(self) -> object:
        """Let go of it."""


class Budget:
    """The time a payload may be waited for. What its handler does between reads is not counted."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._left = seconds
        self._clock = clock
        self._since: float | None = None

    def __enter__(self) -> "Budget":
        self._since = self._clock()
        return self

    def __exit__(self, *error: object) -> None:
        self._left = self.left
        self._since = None

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._left - (0 if self._since is None else self._clock() - self._since)

    def check(self, place: str) -> None:
        """Raise PayloadUnavailable when none are."""
        if self.left <= 0:
            raise PayloadUnavailable(
                f"the payload of {place} did not come within OJS['PAYLOAD_TIMEOUT']"
            )


class Reader(io.RawIOBase):
    """A payload that is read once, from beginning to end.

    Whoever closes it early has the rest read for its checksum. Raises PayloadRefused when it is
    too large, PayloadUnavailable when it does not come, ChecksumMismatch at its end.
    """

    def __init__(
        self, source: Source, reference: Reference, *, place: str, most: int, budget: Budget
    ) -> None:
        self._source = source
        self._reference = reference
        self._place = place
        self._most = most
        self._budget = budget
        self._hash = hashlib.new(reference.algorithm) if reference.algorithm else None
        self.taken = 0
        #: Whether all of it was read, or nobody wants it any more.
        self.done = False
        self.failure: OJSError | None = None

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read some bytes; 0 at the end, where the payload is known to be the one that is meant."""
        view = memoryview(buffer).cast("B")
        data = self.take(len(view))
        view[: len(data)] = data
        return len(data)

    def take(self, size: int = CHUNK) -> bytes:
        """Return some bytes; none at the end."""
        if self.failure is not None:
            raise self.failure
        if self.done or not size:
            return b""
        try:
            return self._take(size)
        except OJSError as error:
            self.failure, self.done = error, True
            raise

    def _take(self, size: int) -> bytes:
        with self._budget:
            data = self._source.read(size)
            self._budget.check(self._place)
        self.taken += len(data)
        if self.taken > self._most:
            raise too_large(self._place, self._most)
        expected = self._reference.size
        if expected is not None and (self.taken > expected or (not data and self.taken < expected)):
            raise ChecksumMismatch(f"the payload of {self._place} is not of the size it should be")
        if self._hash is not None:
            self._hash.update(data)
        if not data:
            self.done = True
            if self._hash is not None and not self._reference.matches(self._hash.hexdigest()):
                raise ChecksumMismatch(f"the checksum of {self._place} is not that of its payload")
        return data

    def finish(self) -> None:
        """Read what nobody has read, for its checksum. Raises what was wrong, then or earlier."""
        if self._hash is not None:
            while not self.done:
                self.take()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Let go of it, whatever is left."""
        self.done = True
        self.close()

    def close(self) -> None:
        """Finish, and let go of it."""
        if self.closed:
            return
        try:
            if not self.done:
                self.finish()
        finally:
            self.done = True
            self._source.close()
            super().close()


def too_large(place: str, most: int) -> PayloadRefused:
    """Make the error for a payload over the limit."""
    return PayloadRefused(f"the payload of {place} must be at most {most} bytes")
