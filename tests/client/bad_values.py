"""Values that no job may have, and what the error says about each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django_ojs.spec import errors
from django_ojs.spec.errors import InvalidArgs, InvalidMetadata, InvalidRequest, OJSError
from tests.testapp.models import Thing

#: Part of every text below: no message may repeat it.
SECRET = "hunter2"

NAIVE = datetime(2031, 5, 6, 7, 8, 9)  # noqa: DTZ001  # that it is naive is the point
UUID4 = UUID("7d444840-9dc0-41d1-b245-5ffdce74fad2")


@dataclass(frozen=True, kw_only=True)
class Bad:
    """One bad value: where it stands, which error it gives, and the words of its message."""

    name: str
    error: type[OJSError]
    says: str
    args: Any = ()
    options: dict[str, Any]


def option(name: str, value: Any, says: str, error: type[OJSError] = InvalidRequest) -> Bad:
    label = f"{name}={type(value).__name__} {str(value)[:20].encode('ascii', 'replace').decode()}"
    return Bad(name=label, error=error, says=says, options={name: value})


def args(label: str, value: Any, says: str) -> Bad:
    return Bad(name=f"args: {label}", error=InvalidArgs, says=says, args=value, options={})


def meta(value: Any, says: str) -> Bad:
    return option("meta", value, says, InvalidMetadata)


def retry(value: Any, says: str) -> Bad:
    return option("retry", value, says, errors.InvalidRetryPolicy)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circle() -> list[Any]:
    value: list[Any] = [SECRET]
    value.append(value)
    return value


POSITIVE = "must be a positive number of seconds or a timedelta"
AN_ID = "id must be a UUIDv7"

ARGS = [
    args("a Decimal", ["x", {"price": Decimal("19.99")}], "args[1].price is a Decimal: send a str"),
    args("a datetime", [NAIVE], "args[0] is a datetime: send an ISO 8601 string"),
    args("a date", [date(2031, 5, 6)], "args[0] is a date: send an ISO 8601 string"),
    args("a timedelta", [timedelta(seconds=4711)], "args[0] is a timedelta: send an ISO 8601"),
    args("a UUID", [UUID4], "args[0] is a UUID: send a string"),
    args("a set", [[{SECRET}]], "args[0][0] is a set: send a list"),
    args("bytes", [b"hunter2"], "args[0] is a bytes: send base64url text"),
    args("a model", [Thing(pk=4711, name=SECRET)], "args[0] is a Thing: send its primary key"),
    args("an object", [object()], "args[0] is a object: send"),
    args("NaN", [float("nan")], "args[0] is NaN, infinite"),
    args("infinity", [{"n": float("-inf")}], "args[0].n is NaN, infinite"),
    args("a large integer", [2**53], "args[0] is an integer beyond ±(2**53-1): send it as a str"),
    args("a huge integer", [-(10**5000)], "args[0] is an integer beyond"),
    args("NUL", [f"{SECRET}\0"], "args[0] contains a NUL character"),
    args("a lone surrogate", [f"{SECRET}\ud800"], "args[0] contains a lone surrogate"),
    args("NUL in a name", [{f"{SECRET}\0": 1}], "args[0] has a name that contains a NUL"),
    args("a surrogate in a name", [{f"{SECRET}\udfff": 1}], "args[0] has a name that contains a l"),
    args("a name that is no string", [{4711: 1}], "args[0] has a name that is a int"),
    args("65 levels", nested(65), "args is nested more than 64 levels deep"),
    args("a hundred thousand levels", nested(100_000), "args is nested more than 64 levels deep"),
    args("a circle", circle(), "args"),
]
NOT_A_LIST = [
    args("a string", SECRET, "args must be a list"),
    args("an object", {"to": SECRET}, "args must be a list"),
    args("a set", {SECRET}, "args must be a list"),
    args("None", None, "args must be a list"),
    args("a generator", (x for x in [SECRET]), "args must be a list"),
]
OPTIONS = [
    option("queue", "", "queue must be a non-empty string", errors.InvalidQueue),
    option("queue", 4711, "queue must be a non-empty string", errors.InvalidQueue),
    option("queue", f"{SECRET} HIGH", "queue must consist of", errors.InvalidQueue),
    option("queue", f"{SECRET}\0", "queue must consist of", errors.InvalidQueue),
    option("queue", "hunter2" * 40, "queue must be at most 255 bytes", errors.QueueNameTooLong),
    option("priority", "hunter2", "priority must be an integer"),
    option("priority", 4711.0, "priority must be an integer"),
    option("priority", True, "priority must be an integer"),
    option("priority", -101, "priority must be between -100 and 100"),
    option("priority", 10**400, "priority must be between -100 and 100"),
    option("scheduled_at", NAIVE, "scheduled_at is a naive datetime"),
    option("scheduled_at", date(2031, 5, 6), "scheduled_at must be a datetime with a time"),
    option("scheduled_at", 4711, "scheduled_at must be a datetime with a time zone, a timedelta"),
    option("scheduled_at", SECRET, "scheduled_at must be an RFC 3339 timestamp"),
    option("scheduled_at", "2031-05-06T07:08:09", "scheduled_at must end with Z or an offset"),
    option("scheduled_at", "2031-02-30T07:08:09Z", "scheduled_at must be a date and a time that"),
    option("scheduled_at", f"+{SECRET}", "scheduled_at must be an ISO 8601 duration"),
    option("scheduled_at", timedelta.max, "scheduled_at must be at most 1000 years"),
    option("expires_at", NAIVE, "expires_at is a naive datetime"),
    option("expires_at", SECRET, "expires_at must be an RFC 3339 timestamp"),
    option("expires_at", timedelta(seconds=-1), "expires_at must not be negative"),
    option("timeout", -4711, f"timeout {POSITIVE}"),
    option("timeout", 0, f"timeout {POSITIVE}"),
    option("timeout", True, f"timeout {POSITIVE}"),
    option("timeout", float("nan"), f"timeout {POSITIVE}"),
    option("timeout", float("inf"), f"timeout {POSITIVE}"),
    option("timeout", Decimal("4711"), f"timeout {POSITIVE}"),
    option("timeout", f"PT5S{SECRET}", f"timeout {POSITIVE}"),
    option("timeout", timedelta(seconds=-4711), f"timeout {POSITIVE}"),
    option("timeout", timedelta(days=25), "timeout must be at most 2147483 seconds"),
    option("timeout", 10**400, "timeout must be at most 2147483 seconds"),
    option("visibility_timeout", -4711, f"visibility_timeout {POSITIVE}"),
    option("visibility_timeout", SECRET, f"visibility_timeout {POSITIVE}"),
    option("visibility_timeout", 1e9, "visibility_timeout must be at most 2147483 seconds"),
    option("tags", SECRET, "tags must be a list of strings"),
    option("tags", {SECRET}, "tags must be a list of strings"),
    option("tags", 4711, "tags must be a list of strings"),
    option("tags", [SECRET, 4711], "tags must be an array of strings"),
    option("tags", [f"{SECRET}\0"], "tags[0] contains a NUL character"),
    option("tags", [f"{SECRET}\ud800"], "tags[0] contains a lone surrogate"),
    option("schema", 4711, "schema must be a URI"),
    option("schema", f"{SECRET} {SECRET}", "schema must be a URI"),
    option("schema", "urn:" + "hunter2" * 300, "schema must be at most 2048 bytes"),
    option("pending", "hunter2", "pending must be a boolean"),
    option("pending", 1, "pending must be a boolean"),
    option("id", UUID4, AN_ID),
    option("id", str(UUID4), AN_ID),
    option("id", "0190A0B0-0000-7000-8000-000000000000", AN_ID),
    option("id", 4711, AN_ID),
    option("color", SECRET, "color is not an option of a job"),
    meta(SECRET, "meta must be a mapping"),
    meta([("a", SECRET)], "meta must be a mapping"),
    meta({"price": Decimal("19.99")}, "meta.price is a Decimal: send a string"),
    meta({"order": Thing(pk=4711, name=SECRET)}, "meta.order is a Thing: send its primary key"),
    meta({4711: SECRET}, "meta has a name that is a int"),
    meta({"a": {SECRET}}, "meta.a is a set: send a list"),
    meta({"a": f"{SECRET}\0"}, "meta.a contains a NUL character"),
    meta({"a": nested(65)}, "meta is nested more than 64 levels deep"),
    option("meta", {"a": SECRET * 10_000}, "meta must be at most 65536", errors.MetadataTooLarge),
    retry(SECRET, "retry must be an object"),
    retry([SECRET], "retry must be an object"),
    retry({"max_attempts": -4711}, "retry.max_attempts must be a non-negative integer"),
    retry({"max_attempts": "hunter2"}, "retry.max_attempts must be a non-negative integer"),
    retry({"max_attempts": True}, "retry.max_attempts must be a non-negative integer"),
    retry({"max_attempts": 2**31}, "retry.max_attempts must be at most"),
    retry({"initial_interval": SECRET}, "retry.initial_interval must be an ISO 8601 duration"),
    retry({"initial_interval": timedelta(0)}, "retry.initial_interval must be greater than zero"),
    retry({"max_interval": "PT0.5S"}, "retry.max_interval must not be less than retry.initial"),
    retry({"max_interval": timedelta(seconds=-4711)}, "retry.max_interval must not be negative"),
    retry({"backoff_coefficient": 0.4711}, "retry.backoff_coefficient must be a number, 1.0 or"),
    retry({"backoff_coefficient": float("nan")}, "retry.backoff_coefficient must be a number"),
    retry({"jitter": SECRET}, "retry.jitter must be a boolean"),
    retry({"non_retryable_errors": SECRET}, "retry.non_retryable_errors must be an array of"),
    retry({"non_retryable_errors": [4711]}, "retry.non_retryable_errors must be an array of"),
    retry({"non_retryable_errors": [f"{SECRET}\0"]}, "retry.non_retryable_errors[0] contains"),
    retry({"on_exhaustion": SECRET}, "retry.on_exhaustion must be one of dead_letter, discard"),
    retry({"backoff_strategy": SECRET}, "retry.backoff_strategy must be one of exponential"),
    retry(
        {"max_attemps": 7}, "retry.max_attemps is not a field of a retry policy. Did you mean max_"
    ),
    retry({"initial_interval": float("nan")}, "retry.initial_interval must be a number between"),
    retry({"x_note": Decimal("19.99")}, "retry.x_note is a Decimal: send a string"),
    retry({4711: SECRET}, "retry has a name that is a int"),
]
TOO_LARGE = Bad(
    name="args over the size of an envelope",
    error=errors.PayloadTooLarge,
    says="envelope must be at most 10485760 bytes",
    args=["hunter2" * 1_500_000],
    options={},
)
TYPES: list[tuple[object, str]] = [
    ("", "type must be a non-empty string"),
    (None, "type must be a non-empty string"),
    (4711, "type must be a non-empty string"),
    (b"hunter2", "type must be a non-empty string"),
    (["hunter2"], "type must be a non-empty string"),
    ("Hunter2.Send", "type must be dotted segments"),
    ("hunter2..send", "type must be dotted segments"),
    ("hunter2 send", "type must be dotted segments"),
    ("hunter2\n", "type must be dotted segments"),
    ("hunter2\0", "type must be dotted segments"),
    ("hunter2\ud800", "type must be dotted segments"),
    ("hunter2" * 40, "type must be at most 255 bytes long"),
]
QUEUES: list[tuple[object, str]] = [
    ("", "queue must be a non-empty string"),
    (None, "queue must be a non-empty string"),
    (4711, "queue must be a non-empty string"),
    (["hunter2"], "queue must be a non-empty string"),
    ("Hunter2", "queue must consist of"),
    ("hunter2 ", "queue must consist of"),
    ("hunter2\0", "queue must consist of"),
    ("hunter2\ud800", "queue must consist of"),
    ("hunter2" * 40, "queue must be at most 255 bytes"),
]
IDS: list[object] = [
    UUID4,
    str(UUID4),
    "0190A0B0-0000-7000-8000-000000000000",
    "0190a0b0000070008000000000000000",
    "hunter2",
    "",
    None,
    4711,
    b"0190a0b0-0000-7000-8000-000000000000",
    ["hunter2"],
]
