"""What s3:// and gs:// have in common: a bucket, a key, and a list of those that are allowed."""

from collections.abc import Sequence

from django_ojs.payloads.reference import Reference
from django_ojs.spec.errors import PayloadRefused


def locate(
    reference: Reference, place: str, *, setting: str, allowed: Sequence[str]
) -> tuple[str, str]:
    """Return bucket and key of a reference. Raises PayloadRefused when the setting has not both."""
    bucket, _, key = reference.uri.partition("://")[2].partition("/")
    # No parser comes between: a key may hold "?" and "#". Some services take dots for folders.
    if not bucket or not key or any(part in (".", "..") for part in key.split("/")):
        raise PayloadRefused(f"{place} must name a bucket and a key")
    where = f"{bucket}/{key}"
    for entry in allowed:
        name, slash, prefix = entry.partition("/")
        if bucket == name and (not slash or where.startswith(f"{name}/{prefix}")):
            return bucket, key
    raise PayloadRefused(f"the bucket of {place} is not allowed: OJS['{setting}'] does not name it")
