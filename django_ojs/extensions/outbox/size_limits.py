"""Check sizes against the manifest: a job that is too large is not sent (payload-limits §8)."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from django_ojs.extensions.outbox.remote_manifest import RemoteManifest
from django_ojs.spec import errors, json
from django_ojs.spec.errors import OJSError

#: The bytes of a batch around its jobs.
_FRAME: Final = len('{"jobs":[]}')


class OutboxItem(Protocol):
    """A job to be sent."""

    type: str
    queue: str
    envelope: str


def check_size(job: OutboxItem, manifest: RemoteManifest) -> OJSError | None:
    """Return the error with which the server would reject the job, or None if it fits."""
    document: Any = json.loads_stored(job.envelope, exact_integers=True)
    meta = document.get("meta") if isinstance(document, dict) else None
    checks = (
        ("queue", len(job.queue.encode()), manifest.queue_bytes, errors.QueueNameTooLong),
        ("type", len(job.type.encode()), manifest.type_bytes, errors.JobTypeTooLong),
        ("envelope", len(job.envelope.encode()), manifest.envelope_bytes, errors.PayloadTooLarge),
        (
            "meta",
            len(json.dumps(meta).encode()) if meta else 0,
            manifest.meta_bytes,
            errors.MetadataTooLarge,
        ),
    )
    for field, actual, limit, error in checks:
        if limit is not None and actual > limit:
            return error(
                f"{field} must be at most {limit} bytes for this server, and has {actual}; it was "
                "not sent"
            )
    return None


def batch_sizes(jobs: Sequence[OutboxItem], body_bytes: int | None) -> Iterator[int]:
    """Yield how many of the jobs, in order, fit into each request."""
    count, size = 0, _FRAME
    for job in jobs:
        length = len(job.envelope.encode()) + 1
        if count and body_bytes is not None and size + length > body_bytes:
            yield count
            count, size = 0, _FRAME
        count, size = count + 1, size + length
    if count:
        yield count
