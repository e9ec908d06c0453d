"""Offloading of large arguments (payload-limits §5): the client stores them in S3.

The key of an object names its job: `<prefix><day of its id>/<job id>/<call>-<index>.json`. The
sweep removes an object whose job does not exist, such as after a rollback.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django_ojs.conf import of
from django_ojs.extension import Batch
from django_ojs.extensions.payloads import s3_client
from django_ojs.extensions.payloads.reference import Reference, is_reference
from django_ojs.extensions.payloads.settings import PayloadSettings
from django_ojs.models import Job
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.push import PushOptions
from django_ojs.spec import json
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import (
    ConnectionError,
    OJSError,
    PayloadRejected,
    PayloadTooLarge,
    size_details,
)
from django_ojs.storage import database
from django_ojs.storage.dialects.expressions import OneOf

logger = logging.getLogger("django_ojs.extensions.payloads")

#: Objects that one request to S3 removes.
DELETE_BATCH: Final = 1_000


class ArgumentOffloader:
    """Offloads the large arguments of one call of the client: the note of its `PushOptions`."""

    def __init__(self) -> None:
        # It is unique for each call, because a call that repeats an id must not change the objects
        # of the first.
        self._call = secrets.token_hex(8)
        self._taken: list[tuple[str, Any]] = []
        self._kept: dict[UUID, list[str]] = {}

    def take(self, envelope: Envelope) -> Envelope:
        """Return the envelope with references in place of its large arguments.

        Raises PayloadTooLarge for an argument that no worker would accept.
        """
        config = of(PayloadSettings).offload
        if config is None:
            return envelope
        args: list[Any] = []
        taken: list[tuple[str, Any]] = []
        for index, arg in enumerate(envelope.args):
            data = b"" if _is_small(arg, config.over) else json.dumps(arg).encode()
            if len(data) <= config.over:
                args.append(arg)
                continue
            _check_size(len(data), index)
            uri = f"{_folder(envelope.id)}{self._call}-{index}.json"
            checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
            args.append(Reference(uri=uri, size=len(data), checksum=checksum).render())
            taken.append((uri, arg))
        if not taken:
            return envelope
        self._taken += taken
        return replace(envelope, args=args, offloaded=tuple(uri for uri, _ in taken))

    def keep(self) -> None:
        """Store in S3 the arguments that `take` has replaced. Raises ConnectionError."""
        service: Any = s3_client.client() if self._taken else None
        for uri, arg in self._taken:
            bucket, key = _located(uri)
            # The object is recorded first, because a request that fails may still have stored it.
            self._kept.setdefault(_job_of(uri), []).append(uri)
            try:
                service.put_object(
                    Bucket=bucket,
                    Key=key,
                    Body=json.dumps(arg).encode(),
                    ContentType="application/json",
                )
            except s3_client.errors():
                raise ConnectionError(
                    "An argument over OJS['OFFLOAD']['over'] could not be put into S3."
                ) from None
        self._taken = []

    def settle(self, stored: Collection[UUID]) -> None:
        """Remove the objects of jobs that were not stored, as they were rejected or duplicates."""
        remove([uri for job, uris in self._kept.items() if job not in stored for uri in uris])


def take(options: PushOptions, envelope: Envelope) -> Envelope:
    """Take the large arguments out of a job of Python code; see `Hooks.admit`."""
    offloader = options.note(ArgumentOffloader)
    return envelope if offloader is None else offloader.take(envelope)


def store(batch: Batch, go_on: Callable[[], list[EnqueuedJob]]) -> list[EnqueuedJob]:
    """Store large arguments, and remove them if their jobs were not stored; see `around_store`."""
    offloader = batch.options.note(ArgumentOffloader)
    if offloader is None:
        return go_on()
    try:
        offloader.keep()
    except BaseException:
        offloader.settle(())
        raise
    try:
        stored = go_on()
    except OJSError as error:
        # After any other error, such as a connection that broke at the COMMIT, the job may be
        # stored. The sweep removes the objects if it is not.
        if not isinstance(error, ConnectionError):
            offloader.settle(())
        raise
    offloader.settle({job.id for job in stored if job.outcome in (Outcome.STORED, Outcome.OUTBOX)})
    return stored


def owns(uri: str, job_id: UUID) -> bool:
    """Say whether an object was stored in S3 for this job."""
    return of(PayloadSettings).offload is not None and uri.startswith(_folder(job_id))


def bucket() -> str:
    """Return the bucket of OFFLOAD. Raises PayloadRejected when there is none."""
    config = of(PayloadSettings).offload
    if config is None:
        raise PayloadRejected("OJS['OFFLOAD'] is not set")
    return config.bucket


def remove_of(keys: Collection[UUID]) -> None:
    """Remove the objects of jobs that are about to be deleted, after the commit."""
    if of(PayloadSettings).offload is None:
        return
    rows = Job.primary.filter(OneOf("pk", keys), options__has_key="offloaded")
    uris = [uri for options in rows.values_list("options", flat=True) for uri in _uris(options)]
    if uris:
        database.after_commit(lambda: remove(uris))


def remove(uris: Iterable[str]) -> None:
    """Remove objects of OFFLOAD. A failure is logged; the sweep removes the objects later."""
    config, uris = of(PayloadSettings).offload, list(uris)
    if config is None or not uris:
        return
    service = s3_client.client()
    keys = [_located(uri)[1] for uri in uris if uri.startswith(config.root)]
    for start in range(0, len(keys), DELETE_BATCH):
        some = [{"Key": key} for key in keys[start : start + DELETE_BATCH]]
        try:
            service.delete_objects(Bucket=config.bucket, Delete={"Objects": some})
        except s3_client.errors() as error:
            logger.warning(
                "%d offloaded arguments could not be removed (%s); the sweep will.",
                len(some),
                type(error).__name__,
            )


def job_of_key(key: str) -> UUID | None:
    """Return the job that an object belongs to, or None for a key of another form."""
    try:
        return UUID(key.split("/")[-2])
    except (IndexError, ValueError):
        return None


def _uris(options: dict[str, Any]) -> list[str]:
    return [uri for uri in options.get("offloaded", ()) if isinstance(uri, str)]


def _check_size(size: int, index: int) -> None:
    limit = of(PayloadSettings).payload_max_bytes
    if size > limit:
        raise PayloadTooLarge.of(
            f"args[{index}]",
            f"must be at most {limit} bytes of JSON",
            **size_details(size, limit),
        )


def _is_small(arg: object, over: int) -> bool:
    # A reference is never offloaded: a worker resolves it.
    return (
        is_reference(arg)
        or arg is None
        or isinstance(arg, bool | int | float)
        or (isinstance(arg, str) and len(arg) * 6 + 2 <= over)
    )


def _folder(job_id: UUID) -> str:
    config = of(PayloadSettings).offload
    assert config is not None
    # The id contains the day of its creation. A client's own id may contain any day, which
    # does no harm.
    day = datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC) if _is_sane(job_id) else None
    return f"{config.root}{day:%Y-%m-%d}/{job_id}/" if day else f"{config.root}unknown/{job_id}/"


def _is_sane(job_id: UUID) -> bool:
    return job_id.int >> 80 < 253_402_300_799_000  # the last second of year 9999


def _job_of(uri: str) -> UUID:
    return UUID(uri.split("/")[-2])


def _located(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
