"""Read the bytes of a payload: limit their number and time, and check size and checksum."""

import hashlib
import io
import time
from collections.abc import Callable
from typing import IO, Any, Final, Protocol

from django_ojs.extensions.payloads.reference import Reference
from django_ojs.spec.errors import ChecksumMismatch, OJSError, PayloadRejected, PayloadUnavailable

CHUNK: Final = 256 * 1024


class Source(Protocol):
    """A source of bytes. Raises PayloadUnavailable when it cannot be read."""

    def read(self, size: int, /) -> bytes:
        """Return some bytes, at most `size`; none at the end."""

    def close(self) -> object:
        """Release its resources."""


class Budget:
    """The seconds that reading a payload may take, without the handler's time between reads."""

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
        """The seconds that remain."""
        return self._left - (0 if self._since is None else self._clock() - self._since)

    def check(self, field: str) -> None:
        """Raise PayloadUnavailable when no time remains."""
        if self.left <= 0:
            raise PayloadUnavailable(
                f"the payload of {field} was not received within OJS['PAYLOAD_TIMEOUT']"
            )


class Reader(io.RawIOBase):
    """A payload that is read once, from beginning to end.

    Closing it early reads the rest for the checksum. Raises PayloadRejected when it is too large,
    PayloadUnavailable when it cannot be received, ChecksumMismatch at its end.
    """

    def __init__(
        self, source: Source, reference: Reference, *, field: str, max_bytes: int, budget: Budget
    ) -> None:
        self._source = source
        self._reference = reference
        self._field = field
        self._max_bytes = max_bytes
        self._budget = budget
        self._hash = hashlib.new(reference.algorithm) if reference.algorithm else None
        self.bytes_read = 0
        #: Whether all of it was read, or the rest is not needed.
        self.done = False
        self.failure: OJSError | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read some bytes; 0 at the end, after the checks of size and checksum."""
        view = memoryview(buffer).cast("B")
        data = self.read_chunk(len(view))
        view[: len(data)] = data
        return len(data)

    def read_chunk(self, size: int = CHUNK) -> bytes:
        """Return some bytes; none at the end."""
        if self.failure is not None:
            raise self.failure
        if self.done or not size:
            return b""
        try:
            return self._read_chunk(size)
        except OJSError as error:
            self.failure, self.done = error, True
            raise

    def _read_chunk(self, size: int) -> bytes:
        with self._budget:
            data = self._source.read(size)
            self._budget.check(self._field)
        self.bytes_read += len(data)
        if self.bytes_read > self._max_bytes:
            raise too_large(self._field, self._max_bytes)
        expected = self._reference.size
        if expected is not None and (
            self.bytes_read > expected or (not data and self.bytes_read < expected)
        ):
            raise ChecksumMismatch(f"the size of {self._field} does not match its payload")
        if self._hash is not None:
            self._hash.update(data)
        if not data:
            self.done = True
            if self._hash is not None and not self._reference.matches(self._hash.hexdigest()):
                raise ChecksumMismatch(f"the checksum of {self._field} does not match its payload")
        return data

    @property
    def has_checksum(self) -> bool:
        """Whether a checksum is verified at the end."""
        return self._hash is not None

    def copy_to(self, file: IO[bytes]) -> int:
        """Write all of it to a file, close this reader, and return the number of bytes."""
        while piece := self.read_chunk():
            file.write(piece)
        self.close()
        return self.bytes_read

    def finish(self) -> None:
        """Read the rest for the checksum. Raises the error of this read or of an earlier one."""
        if self._hash is not None:
            while not self.done:
                self.read_chunk()
        if self.failure is not None:
            raise self.failure

    def abandon(self) -> None:
        """Close it without reading the rest."""
        self.done = True
        self.close()

    def close(self) -> None:
        """Read the rest for the checksum, and close the source."""
        if self.closed:
            return
        try:
            if not self.done:
                self.finish()
        finally:
            self.done = True
            self._source.close()
            super().close()


def too_large(field: str, max_bytes: int) -> PayloadRejected:
    """Make the error for a payload over the limit."""
    return PayloadRejected(f"the payload of {field} must be at most {max_bytes} bytes")
