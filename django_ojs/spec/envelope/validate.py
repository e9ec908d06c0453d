"""Every constraint on the values of an envelope (ojs-core §5; payload-limits §3)."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django_ojs.spec.envelope.model import (
    MAX_PRIORITY,
    MAX_TIMEOUT_MS,
    MIN_PRIORITY,
    SPECVERSIONS,
    Envelope,
    Limits,
)
from django_ojs.spec.errors import (
    InvalidArgs,
    InvalidJobType,
    InvalidMetadata,
    InvalidPayload,
    InvalidQueue,
    InvalidRequest,
    InvalidRetryPolicy,
    JobTypeTooLong,
    MetadataTooLarge,
    OJSError,
    PayloadTooLarge,
    QueueNameTooLong,
    UniqueKeyInvalid,
    UnsupportedFeature,
)
from django_ojs.spec.ids import is_uuid7
from django_ojs.spec.json import dumps
from django_ojs.spec.retry import RetryPolicy
from django_ojs.spec.strict import Refused, explain, measure
from django_ojs.spec.times import parse_when
from django_ojs.spec.unique import UniquePolicy

_TYPE: Final = re.compile(r"[a-z][a-z0-9_\-]*(?:\.[a-z][a-z0-9_\-]*)*").fullmatch
_QUEUE: Final = re.compile(r"[a-z0-9][a-z0-9\-.]*").fullmatch
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[!-~]+").fullmatch

MAX_SCHEMA: Final = 2_048

DEFAULT_LIMITS: Final = Limits()


def validate(envelope: Envelope, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse what may not be stored; each error names the field and the rule."""
    if not isinstance(envelope.id, UUID) or not is_uuid7(envelope.id):
        raise InvalidRequest.of("id", "must be a UUIDv7")
    if not isinstance(envelope.specversion, str):
        raise InvalidRequest.of("specversion", "must be a string")
    if envelope.specversion not in SPECVERSIONS:
        raise UnsupportedFeature.of(
            "specversion", f"must be one of {', '.join(sorted(SPECVERSIONS))}"
        )
    check_type(envelope.type, limits)
    check_queue(envelope.queue, limits)
    if type(envelope.priority) is not int and not _is_integer(envelope.priority):
        raise InvalidRequest.of("priority", "must be an integer")
    if not MIN_PRIORITY <= envelope.priority <= MAX_PRIORITY:
        raise InvalidRequest.of("priority", f"must be between {MIN_PRIORITY} and {MAX_PRIORITY}")
    if not isinstance(envelope.args, list | tuple):
        raise InvalidArgs.of("args", "must be an array")
    size = 512 + _measure(envelope.args, "args", limits, InvalidArgs)  # 512: the names and the rest
    if envelope.meta or not isinstance(envelope.meta, dict):
        size += _validate_meta(envelope.meta, limits)
    size += _validate_options(envelope, limits)
    if size > limits.envelope_bytes:
        check_size(sized(envelope), limits)


def check_type(value: object, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse a job type that breaks the naming rule. Raises InvalidJobType, JobTypeTooLong."""
    if not isinstance(value, str) or not value:
        raise InvalidJobType.of("type", "must be a non-empty string")
    if _longer(value, limits.type_bytes):
        raise JobTypeTooLong.of("type", f"must be at most {limits.type_bytes} bytes long")
    if _TYPE(value) is None:
        raise InvalidJobType.of(
            "type",
            "must be dotted segments of a-z, 0-9, _ and -, each beginning with a letter",
        )


def check_queue(value: object, limits: Limits = DEFAULT_LIMITS, *, field: str = "queue") -> None:
    """Refuse a queue name that breaks the naming rule. Raises InvalidQueue, QueueNameTooLong."""
    if not isinstance(value, str) or not value:
        raise InvalidQueue.of(field, "must be a non-empty string")
    if _longer(value, limits.queue_bytes):
        raise QueueNameTooLong.of(field, f"must be at most {limits.queue_bytes} bytes long")
    if _QUEUE(value) is None:
        raise InvalidQueue.of(
            field,
            "must consist of a-z, 0-9, - and dots, beginning with a letter or a digit",
        )


def check_size(data: Mapping[str, Any], limits: Limits) -> None:
    """Refuse an envelope over `limits.envelope_bytes` of compact UTF-8 JSON.

    Raises PayloadTooLarge.
    """
    try:
        if measure(data, exact_integers=True, depth=2**10) <= limits.envelope_bytes:
            return
    except Refused:
        pass  # validate() says what is wrong with it; its size is still to be judged
    _refuse_over(_bytes(data), limits.envelope_bytes, "envelope", PayloadTooLarge)


def _validate_meta(meta: object, limits: Limits) -> int:
    if not isinstance(meta, dict):
        raise InvalidMetadata.of("meta", "must be an object")
    size = _measure(meta, "meta", limits, InvalidMetadata)
    if size > limits.meta_bytes:
        _refuse_over(_bytes(meta), limits.meta_bytes, "meta", MetadataTooLarge)
    return size


def _validate_options(envelope: Envelope, limits: Limits) -> int:
    """Check the fields most jobs leave out; return an upper bound of what they take."""
    size = 0
    if envelope.timeout_ms is not None:
        _milliseconds(envelope.timeout_ms, "timeout_ms")
    if envelope.visibility_timeout_ms is not None:
        _milliseconds(envelope.visibility_timeout_ms, "visibility_timeout_ms")
    if envelope.scheduled_at is not None:
        _when(envelope.scheduled_at, "scheduled_at")
    if envelope.expires_at is not None:
        _when(envelope.expires_at, "expires_at")
    if type(envelope.pending) is not bool:
        raise InvalidRequest.of("pending", "must be a boolean")
    if envelope.retry is not None:
        if not isinstance(envelope.retry, RetryPolicy):
            raise InvalidRetryPolicy.of("retry", "must be a retry policy")
        policy = envelope.retry
        if policy.extra or policy.non_retryable_errors:
            size += _measure(policy.render(), "retry", limits, InvalidRetryPolicy)
    if envelope.schema is not None:
        size += _validate_schema(envelope.schema)
    if envelope.tags:
        if not isinstance(envelope.tags, list | tuple) or not all(
            isinstance(tag, str) for tag in envelope.tags
        ):
            raise InvalidRequest.of("tags", "must be an array of strings")
        size += _measure(envelope.tags, "tags", limits, InvalidRequest)
    elif not isinstance(envelope.tags, list | tuple):
        raise InvalidRequest.of("tags", "must be an array of strings")
    if envelope.unique is not None:
        if not isinstance(envelope.unique, UniquePolicy):
            raise UniqueKeyInvalid.of("unique", "must be a unique policy")
        size += _measure(envelope.unique.render(), "unique", limits, UniqueKeyInvalid)
    if envelope.rate_limit is not None:
        size += _object(envelope.rate_limit, "rate_limit", limits)
    if envelope.extra or not isinstance(envelope.extra, dict):
        size += _object(envelope.extra, "", limits)
    return size


def _validate_schema(schema: object) -> int:
    if not isinstance(schema, str) or _URI(schema) is None:
        raise InvalidRequest.of("schema", "must be a URI such as urn:ojs:schema:email.send:v1")
    if len(schema) > MAX_SCHEMA:
        raise InvalidRequest.of("schema", f"must be at most {MAX_SCHEMA} bytes long")
    return len(schema)


def _object(value: object, field: str, limits: Limits) -> int:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{field or 'the job'} must be an object")
    return _measure(value, field, limits, InvalidRequest)


def _when(value: object, field: str) -> None:
    if not isinstance(value, datetime | timedelta):
        raise InvalidRequest.of(field, "must be a datetime or a timedelta")
    parse_when(value, field)


def _milliseconds(value: object, field: str) -> None:
    if not _is_integer(value) or not 0 < value <= MAX_TIMEOUT_MS:  # type: ignore[operator]  # an int by then
        raise InvalidRequest.of(field, f"must be a positive integer of at most {MAX_TIMEOUT_MS}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _longer(text: str, limit: int) -> bool:
    return len(text) > limit or (
        not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > limit
    )


def _measure(value: object, field: str, limits: Limits, error: type[OJSError]) -> int:
    try:
        return measure(value, exact_integers=limits.exact_integers)
    except Refused:
        found = explain(value, field, exact_integers=limits.exact_integers)
        message = found or f"{field} cannot be stored as JSON"
        raise error(message, details={"field": field} if field else None) from None


def sized(envelope: Envelope) -> dict[str, Any]:
    """Return what counts as the envelope: the fields whose size the client chose."""
    # Never more than the client sent, so that what passed on arrival passes again before it is
    # stored.
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


def _bytes(value: object) -> int:
    try:
        return len(dumps(value).encode())
    except InvalidPayload:
        return 0  # not JSON: refused elsewhere, by name


def _refuse_over(actual: int, limit: int, field: str, error: type[OJSError]) -> None:
    if actual > limit:
        raise error(
            f"{field} must be at most {limit} bytes of JSON",
            details={
                "field": field,
                "actual_bytes": actual,
                "max_bytes": limit,
                "size_bytes": actual,
                "max_size_bytes": limit,
            },
        )
