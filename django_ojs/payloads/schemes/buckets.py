"""Bucket and key of s3:// and gs:// references, checked against the allowed ones."""

from collections.abc import Sequence

from django_ojs.payloads.reference import Reference
from django_ojs.spec.errors import PayloadRefused


def locate(
    reference: Reference, field: str, *, setting: str, allowed: Sequence[str]
) -> tuple[str, str]:
    """Return bucket and key of a reference. Raises PayloadRefused when they are not allowed."""
    bucket, _, key = reference.uri.partition("://")[2].partition("/")
    # Not with a URL parser: a key may contain "?" and "#". Some services read dots as folders.
    if not bucket or not key or any(part in (".", "..") for part in key.split("/")):
        raise PayloadRefused(f"{field} must name a bucket and a key")
    where = f"{bucket}/{key}"
    for entry in allowed:
        name, slash, prefix = entry.partition("/")
        if bucket == name and (not slash or where.startswith(f"{name}/{prefix}")):
            return bucket, key
    raise PayloadRefused(f"the bucket of {field} is not allowed: OJS['{setting}'] does not name it")
