"""Objects of s3:// and gs:// references: the check of bucket and key, and reading."""

from collections.abc import Sequence
from typing import Any

from django_ojs.extensions.payloads.reference import Reference
from django_ojs.spec.errors import PayloadRejected, PayloadUnavailable


class StoredObject:
    """A file that a library has opened. After one of its `failures`, a later read may succeed."""

    def __init__(self, file: Any, field: str, failures: tuple[type[Exception], ...]) -> None:
        self._file = file
        self._field = field
        self._failures = failures

    def read(self, size: int, /) -> bytes:
        try:
            return self._file.read(size)  # type: ignore[no-any-return]  # the libraries have no types
        except self._failures:
            raise PayloadUnavailable(f"the payload of {self._field} broke off") from None

    def close(self) -> None:
        self._file.close()


def locate(
    reference: Reference, field: str, *, setting: str, allowed: Sequence[str]
) -> tuple[str, str]:
    """Return bucket and key of a reference. Raises PayloadRejected when they are not allowed."""
    bucket, _, key = reference.uri.partition("://")[2].partition("/")
    # A URL parser cannot be used: a key may contain "?" and "#". Some services read dots as
    # folders.
    if not bucket or not key or any(part in (".", "..") for part in key.split("/")):
        raise PayloadRejected(f"{field} must name a bucket and a key")
    where = f"{bucket}/{key}"
    for entry in allowed:
        name, slash, prefix = entry.partition("/")
        if bucket == name and (not slash or where.startswith(f"{name}/{prefix}")):
            return bucket, key
    raise PayloadRejected(
        f"the bucket of {field} is not allowed: OJS['{setting}'] does not name it"
    )
