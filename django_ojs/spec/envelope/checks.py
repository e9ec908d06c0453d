"""The rules for single values of an envelope; each error names the field and the rule."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django_ojs.spec.envelope.model import MAX_TIMEOUT_MS, Limits
from django_ojs.spec.errors import (
    InvalidJobType,
    InvalidPayload,
    InvalidQueue,
    InvalidRequest,
    InvalidRetryPolicy,
    JobTypeTooLong,
    OJSError,
    PayloadTooLarge,
    QueueNameTooLong,
    UniqueKeyInvalid,
    size_details,
)
from django_ojs.spec.json import dumps
from django_ojs.spec.json_rules import Refused, explain, measure
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.times import parse_when
from django_ojs.spec.unique_policy import UniquePolicy

_TYPE: Final = re.compile(r"[a-z][a-z0-9_\-]*(?:\.[a-z][a-z0-9_\-]*)*").fullmatch
_QUEUE: Final = re.compile(r"[a-z0-9][a-z0-9\-.]*").fullmatch
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[!-~]+").fullmatch

MAX_SCHEMA: Final = 2_048

DEFAULT_LIMITS: Final = Limits()


def check_type(value: object, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check a job type. Raises InvalidJobType, JobTypeTooLong."""
    # What the pattern matches is ASCII: its characters are its bytes.
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
    """Check that an envelope is at most `limits.envelope_bytes` of compact UTF-8 JSON.

    Raises PayloadTooLarge.
    """
    try:
        if measure(data, exact_integers=True, depth=2**10) <= limits.envelope_bytes:
            return
    except Refused:
        pass  # validate() names what is wrong with it; the size still has to be checked
    check_bytes(data, limits.envelope_bytes, "envelope", PayloadTooLarge)


def check_bytes(value: object, limit: int, field: str, error: type[OJSError]) -> None:
    try:
        size = len(dumps(value).encode())
    except InvalidPayload:
        return  # not JSON: the check of the field names it
    if size > limit:
        raise error.of(field, f"must be at most {limit} bytes of JSON", **size_details(size, limit))


def measure_field(value: object, field: str, limits: Limits, error: type[OJSError]) -> int:
    """Return an upper bound of the bytes of a JSON value. Raises `error` when it is not JSON."""
    try:
        return measure(value, exact_integers=limits.exact_integers)
    except Refused:
        found = explain(value, field, exact_integers=limits.exact_integers)
        message = found or f"{field} cannot be stored as JSON"
        raise error(message, details={"field": field} if field else None) from None


def is_integer(value: object) -> bool:
    """Return whether a value is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


# The checks of optional fields return an upper bound of the bytes that the value adds.


def timeout(value: object, field: str, limits: Limits) -> int:
    if not is_integer(value) or not 0 < value <= MAX_TIMEOUT_MS:  # type: ignore[operator]  # an int by then
        raise InvalidRequest.of(field, f"must be a positive integer of at most {MAX_TIMEOUT_MS}")
    return 0


def when(value: object, field: str, limits: Limits) -> int:
    if not isinstance(value, datetime | timedelta):
        raise InvalidRequest.of(field, "must be a datetime or a timedelta")
    parse_when(value, field)
    return 0


def retry(value: object, field: str, limits: Limits) -> int:
    """Check that a value is a RetryPolicy, and its texts."""
    if not isinstance(value, RetryPolicy):
        raise InvalidRetryPolicy.of(field, "must be a retry policy")
    if value.extra or value.non_retryable_errors:
        return measure_field(value.render(), field, limits, InvalidRetryPolicy)
    return 0


def unique(value: object, field: str, limits: Limits) -> int:
    """Check that a value is a UniquePolicy, and its texts."""
    if not isinstance(value, UniquePolicy):
        raise UniqueKeyInvalid.of(field, "must be a unique policy")
    return measure_field(value.render(), field, limits, UniqueKeyInvalid)


def schema(value: object, field: str, limits: Limits) -> int:
    if not isinstance(value, str) or _URI(value) is None:
        raise InvalidRequest.of(field, "must be a URI such as urn:ojs:schema:email.send:v1")
    if len(value) > MAX_SCHEMA:
        raise InvalidRequest.of(field, f"must be at most {MAX_SCHEMA} bytes long")
    return len(value)


def strings(value: object, field: str, limits: Limits) -> int:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise InvalidRequest.of(field, "must be an array of strings")
    return measure_field(value, field, limits, InvalidRequest)


def object_(value: object, field: str, limits: Limits) -> int:
    if not isinstance(value, dict):
        raise InvalidRequest.of(field, "must be an object")
    return measure_field(value, field, limits, InvalidRequest)


def extra(value: object, field: str, limits: Limits) -> int:
    """Check the attributes that have no field of their own; errors name them without a prefix."""
    if not isinstance(value, dict):
        raise InvalidRequest("the job must be an object")
    return measure_field(value, "", limits, InvalidRequest)


def _longer(text: str, limit: int) -> bool:
    return len(text) > limit or (
        not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > limit
    )
