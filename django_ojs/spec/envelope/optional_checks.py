"""The checks of an envelope's optional fields; `validate` has the checks of the others.

Each returns an upper bound of the bytes that the value adds.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django_ojs.spec.envelope.model import MAX_PERIOD, MAX_TIMEOUT_MS, Limits
from django_ojs.spec.errors import InvalidRequest, InvalidRetryPolicy, OJSError, UniqueKeyInvalid
from django_ojs.spec.ids import parse_id
from django_ojs.spec.json import check
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.times import parse_when
from django_ojs.spec.unique_policy import UniquePolicy

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:[!-~]+").fullmatch

MAX_SCHEMA: Final = 2_048

#: The attributes that extensions know, with the check of each: see `extension.Attribute`.
known_to_extensions: Final[dict[str, Callable[[Any, str], object]]] = {}


def declare(checks: Mapping[str, Callable[[Any, str], object]]) -> None:
    """Set the checks of the attributes that extensions know, by their names."""
    known_to_extensions.clear()
    known_to_extensions.update(checks)


def is_integer(value: object) -> bool:
    """Return whether a value is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def timeout(value: object, field: str, limits: Limits) -> int:
    if not is_integer(value) or not 0 < value <= MAX_TIMEOUT_MS:  # type: ignore[operator]  # an int by then
        raise InvalidRequest.of(field, f"must be a positive integer of at most {MAX_TIMEOUT_MS}")
    return 0


def period(value: object, field: str, limits: Limits) -> int:
    """Check a number of seconds, counted from the time at which the job is stored."""
    if not is_integer(value) or not 0 < value <= MAX_PERIOD:  # type: ignore[operator]  # an int by then
        rule = f"must be a positive integer of seconds, at most {MAX_PERIOD}"
        raise InvalidRequest.of(field, rule)
    return 0


def when(value: object, field: str, limits: Limits) -> int:
    if not isinstance(value, datetime | timedelta):
        raise InvalidRequest.of(field, "must be a datetime or a timedelta")
    parse_when(value, field)
    return 0


def retry(value: object, field: str, limits: Limits) -> int:
    """Check that a value is a RetryPolicy, and check its texts."""
    if not isinstance(value, RetryPolicy):
        raise InvalidRetryPolicy.of(field, "must be a retry policy")
    if value.extra or value.non_retryable_errors:
        return _measure(value.render(), field, limits, InvalidRetryPolicy)
    return 0


def unique(value: object, field: str, limits: Limits) -> int:
    """Check that a value is a UniquePolicy, and check its texts."""
    if not isinstance(value, UniquePolicy):
        raise UniqueKeyInvalid.of(field, "must be a unique policy")
    return _measure(value.render(), field, limits, UniqueKeyInvalid)


def identifier(value: object, field: str, limits: Limits) -> int:
    """Check that a value is the id of a job."""
    if not isinstance(value, UUID):
        raise InvalidRequest.of(field, "must be a UUIDv7")
    parse_id(value, field)
    return 0


def schema(value: object, field: str, limits: Limits) -> int:
    if not isinstance(value, str) or _URI(value) is None:
        raise InvalidRequest.of(field, "must be a URI such as urn:ojs:schema:email.send:v1")
    if len(value) > MAX_SCHEMA:
        raise InvalidRequest.of(field, f"must be at most {MAX_SCHEMA} bytes long")
    return len(value)


def strings(value: object, field: str, limits: Limits) -> int:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise InvalidRequest.of(field, "must be an array of strings")
    return _measure(value, field, limits, InvalidRequest)


def rate_limit(value: object, field: str, limits: Limits) -> int:
    """Check the limits of a job, by the rules of the extension that knows them."""
    if not isinstance(value, dict):
        raise InvalidRequest.of(field, "must be an object")
    if check_known := known_to_extensions.get(field):
        check_known(value, field)
    return _measure(value, field, limits, InvalidRequest)


def extra(value: object, field: str, limits: Limits) -> int:
    """Check the attributes that have no field of their own; errors name them without a prefix."""
    if not isinstance(value, dict):
        raise InvalidRequest("the job must be an object")
    size = _measure(value, "", limits, InvalidRequest)
    for name in known_to_extensions.keys() & value.keys():
        if value[name] is not None:  # A null counts as missing.
            known_to_extensions[name](value[name], name)
    return size


def _measure(value: object, field: str, limits: Limits, error: type[OJSError]) -> int:
    return check(value, field, exact_integers=limits.exact_integers, error=error)
