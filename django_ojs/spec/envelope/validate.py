"""Every constraint on the values of an envelope (ojs-core §5; payload-limits §3).

Each error names the field and the rule.
"""

import re
from collections.abc import Mapping
from itertools import compress
from operator import attrgetter, ne
from typing import Any, Final
from uuid import UUID

from django_ojs.spec.envelope.fields import FIELDS, INTERNAL
from django_ojs.spec.envelope.model import (
    DEFAULT_LIMITS,
    MAX_PRIORITY,
    MIN_PRIORITY,
    SPECVERSIONS,
    Envelope,
    Limits,
)
from django_ojs.spec.envelope.optional_checks import is_integer
from django_ojs.spec.errors import (
    InvalidArgs,
    InvalidJobType,
    InvalidMetadata,
    InvalidPayload,
    InvalidQueue,
    InvalidRequest,
    JobTypeTooLong,
    MetadataTooLarge,
    OJSError,
    PayloadTooLarge,
    QueueNameTooLong,
    UnsupportedFeature,
)
from django_ojs.spec.ids import is_uuid7
from django_ojs.spec.json import BODY_DEPTH, Rejected, check, dumps, measure

_TYPE: Final = re.compile(r"[a-z][a-z0-9_\-]*(?:\.[a-z][a-z0-9_\-]*)*").fullmatch
_QUEUE: Final = re.compile(r"[a-z0-9][a-z0-9\-.]*").fullmatch

# The fields that most jobs leave out. They are read and compared all at once, because every enqueue
# comes through here.
_OPTIONAL: Final = tuple(field for field in (*FIELDS, *INTERNAL) if field.check is not None)
_CHECKS: Final = tuple((field.name, field.check) for field in _OPTIONAL if field.check is not None)
_DEFAULTS: Final = tuple(field.default for field in _OPTIONAL)
_values: Final = attrgetter(*(field.name for field in _OPTIONAL))


def validate(envelope: Envelope, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check that an envelope may be stored; each error names the field and the rule."""
    if not isinstance(envelope.id, UUID) or not is_uuid7(envelope.id):
        raise InvalidRequest.of("id", "must be a UUIDv7")
    if not isinstance(envelope.specversion, str):
        raise InvalidRequest.of("specversion", "must be a string")
    if envelope.specversion not in SPECVERSIONS:
        known = ", ".join(sorted(SPECVERSIONS))
        raise UnsupportedFeature.of("specversion", f"must be one of {known}")
    check_type(envelope.type, limits)
    check_queue(envelope.queue, limits)
    if type(envelope.priority) is not int and not is_integer(envelope.priority):
        raise InvalidRequest.of("priority", "must be an integer")
    if not MIN_PRIORITY <= envelope.priority <= MAX_PRIORITY:
        raise InvalidRequest.of(
            "priority",
            f"must be between {MIN_PRIORITY} and {MAX_PRIORITY}",
        )
    if not isinstance(envelope.args, list | tuple):
        raise InvalidArgs.of("args", "must be an array")
    # 512 bytes are an upper bound of the names and of the fields that are not measured.
    exact = limits.exact_integers
    size = 512 + check(envelope.args, "args", exact_integers=exact, error=InvalidArgs)
    if envelope.meta or not isinstance(envelope.meta, dict):
        size += _validate_meta(envelope.meta, limits)
    if type(envelope.pending) is not bool:
        raise InvalidRequest.of("pending", "must be a boolean")
    values = _values(envelope)
    if values != _DEFAULTS:
        present = map(ne, values, _DEFAULTS)
        for (name, measured), value in compress(zip(_CHECKS, values, strict=True), present):
            size += measured(value, name, limits)
        total = envelope.total_timeout
        if total is not None and (envelope.timeout_ms or 0) > total * 1000:
            # ojs-timeouts §6.
            raise InvalidRequest.of("total_timeout", "must not be less than the timeout")
    if size > limits.envelope_bytes:
        check_size(sized(envelope), limits)


def check_type(value: object, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check a job type. Raises InvalidJobType, JobTypeTooLong."""
    # The pattern matches only ASCII, so the number of characters is the number of bytes.
    if isinstance(value, str) and len(value) <= limits.type_bytes and _TYPE(value):
        return
    if not isinstance(value, str) or not value:
        raise InvalidJobType.of("type", "must be a non-empty string")
    if _longer(value, limits.type_bytes):
        raise JobTypeTooLong.of("type", f"must be at most {limits.type_bytes} bytes long")
    raise InvalidJobType.of(
        "type", "must be dotted segments of a-z, 0-9, _ and -, each beginning with a letter"
    )


def check_queue(value: object, limits: Limits = DEFAULT_LIMITS, *, field: str = "queue") -> None:
    """Check a queue name. Raises InvalidQueue, QueueNameTooLong."""
    if isinstance(value, str) and len(value) <= limits.queue_bytes and _QUEUE(value):
        return
    if not isinstance(value, str) or not value:
        raise InvalidQueue.of(field, "must be a non-empty string")
    if _longer(value, limits.queue_bytes):
        raise QueueNameTooLong.of(field, f"must be at most {limits.queue_bytes} bytes long")
    raise InvalidQueue.of(
        field, "must consist of a-z, 0-9, - and dots, beginning with a letter or a digit"
    )


def check_size(data: Mapping[str, Any], limits: Limits) -> None:
    """Check that an envelope is at most `Limits.envelope_bytes` of compact UTF-8 JSON.

    Raises PayloadTooLarge.
    """
    try:
        if measure(data, exact_integers=True, depth=BODY_DEPTH) <= limits.envelope_bytes:
            return
    except Rejected:
        pass  # validate() names what is wrong with it; the size still has to be checked
    check_bytes(data, limits.envelope_bytes, "envelope", PayloadTooLarge)


def check_bytes(value: object, limit: int, field: str, error: type[OJSError]) -> None:
    """Raise `error` when a value is more than `limit` bytes of JSON."""
    try:
        size = len(dumps(value).encode())
    except InvalidPayload:
        return  # not JSON: the check of the field names it
    if size > limit:
        raise error.of(
            field,
            f"must be at most {limit} bytes of JSON",
            actual_bytes=size,
            max_bytes=limit,
            size_bytes=size,
            max_size_bytes=limit,
        )


def _validate_meta(meta: object, limits: Limits) -> int:
    if not isinstance(meta, dict):
        raise InvalidMetadata.of("meta", "must be an object")
    size = check(meta, "meta", exact_integers=limits.exact_integers, error=InvalidMetadata)
    if size > limits.meta_bytes:
        check_bytes(meta, limits.meta_bytes, "meta", MetadataTooLarge)
    return size


def sized(envelope: Envelope) -> dict[str, Any]:
    """Return the part of an envelope whose size counts: the fields whose size the client chose."""
    # It is never more than the client sent, so that an envelope that passed on arrival passes again
    # before it is stored.
    sized: dict[str, Any] = {"type": envelope.type, "args": envelope.args, **envelope.extra}
    if envelope.queue != "default":
        sized["queue"] = envelope.queue
    for name in ("meta", "tags", "rate_limit", "schema"):
        if getattr(envelope, name):
            sized[name] = getattr(envelope, name)
    if envelope.retry is not None and envelope.retry.extra:
        sized["retry"] = dict(envelope.retry.extra)
    if envelope.unique is not None:
        sized["unique"] = [envelope.unique.args_keys or (), envelope.unique.meta_keys or ()]
    return sized


def _longer(text: str, limit: int) -> bool:
    return len(text) > limit or (
        not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > limit
    )
