"""Reading an envelope from JSON, in core's dialect, the HTTP binding's, or both (core §7.1)."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django_ojs.spec.envelope.model import MAX_TIMEOUT_MS, SPECVERSION, Envelope, Limits
from django_ojs.spec.envelope.validate import DEFAULT_LIMITS, check_size
from django_ojs.spec.errors import InvalidArgs, InvalidMetadata, InvalidRequest, OJSError
from django_ojs.spec.ids import parse_id, uuid7
from django_ojs.spec.retry import DEFAULT, RetryPolicy
from django_ojs.spec.retry import parse as parse_retry
from django_ojs.spec.times import format_timestamp, parse_duration, parse_when
from django_ojs.spec.unique import parse as parse_unique

#: Set by the server; what a client sends for them is ignored (core §5.3).
SYSTEM: Final = frozenset(
    {
        "state",
        "attempt",
        "max_attempts",
        "created_at",
        "enqueued_at",
        "activated_at",
        "started_at",
        "completed_at",
        "cancelled_at",
        "discarded_at",
        "result",
        "error",
        "errors",
        "next_attempt_at",
        "retry_delay_ms",
        "progress",
        "last_checkpoint",
        "parent_results",
        "workflow_id",
    }
)

#: Read from `options` and from the top level; `options` wins.
OPTIONS: Final = frozenset(
    {
        "queue",
        "priority",
        "timeout",
        "timeout_ms",
        "visibility_timeout",
        "visibility_timeout_ms",
        "scheduled_at",
        "delay_until",
        "expires_at",
        "retry",
        "retry_policy",
        "unique",
        "schema",
        "tags",
        "meta",
        "metadata",
        "pending",
        "rate_limit",
    }
)
_KNOWN: Final = SYSTEM | OPTIONS | {"specversion", "id", "type", "args", "options"}


def parse(
    data: Mapping[str, Any],
    *,
    default_retry: RetryPolicy = DEFAULT,
    limits: Limits = DEFAULT_LIMITS,
) -> Envelope:
    """Return the envelope a decoded JSON object describes; `validate` judges whether to store it.

    `default_retry` is what a partial policy is completed with. Raises InvalidRequest and its kin,
    PayloadTooLarge (measured here on what the client sent).
    """
    if not isinstance(data, Mapping):
        raise InvalidRequest("a job must be an object")
    options = _object(data, "options") or {}
    given = {key: value for key in OPTIONS if (value := data.get(key)) is not None}
    _override(given, options)
    for name in ("type", "args"):
        if data.get(name) is None:
            raise InvalidRequest.of(name, "is required")
    args = data["args"]
    if not isinstance(args, list):
        raise InvalidArgs.of("args", "must be an array")
    identifier = data.get("id")
    specversion = data.get("specversion")
    envelope = Envelope(
        id=uuid7() if identifier is None else parse_id(identifier),
        type=data["type"],
        args=args,
        specversion=SPECVERSION if specversion is None else specversion,
        extra=_extra(data, options),
        document=data,
    )
    meta = _merged(data, options)
    if meta:
        envelope.meta = meta
    if default_retry != DEFAULT:
        envelope.retry = default_retry
    if given:
        _apply(envelope, given, default_retry)
    check_size(data, limits)
    return envelope


def _override(given: dict[str, Any], options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        if value is None or key not in OPTIONS:
            continue
        # One of two spellings in `options` wins over the other one at the top level.
        for names in _SYNONYMS:
            if key in names:
                for name in names:
                    if options.get(name) is None:
                        given.pop(name, None)
        given[key] = value


_SYNONYMS: Final = (
    ("timeout_ms", "timeout"),
    ("visibility_timeout_ms", "visibility_timeout"),
    ("scheduled_at", "delay_until"),
    ("retry", "retry_policy"),
)


def _apply(envelope: Envelope, given: dict[str, Any], default_retry: RetryPolicy) -> None:
    for name in ("queue", "priority", "schema", "tags", "pending"):
        if name in given:
            setattr(envelope, name, given[name])
    if "rate_limit" in given:
        envelope.rate_limit = _object(given, "rate_limit")
    if "unique" in given:
        envelope.unique = parse_unique(given["unique"], args=envelope.args)
    for name in ("timeout_ms", "visibility_timeout_ms"):
        setattr(envelope, name, _timeout(given, name))
    for name, text_name, other in (
        ("scheduled_at", "scheduled_at_text", "delay_until"),
        ("expires_at", "expires_at_text", ""),
    ):
        field, value = (name, given[name]) if name in given else (other, given.get(other))
        if value is not None:
            when = parse_when(value, field)
            setattr(envelope, name, when)
            setattr(envelope, text_name, when_text(value, when))
    for name in ("retry", "retry_policy"):
        if name in given:
            envelope.retry = parse_retry(given[name], default=default_retry)
            break


def when_text(value: object, when: datetime | timedelta) -> str | None:
    """Return what answers repeat for a `scheduled_at`.

    That is the client's absolute text; None while it is relative.
    """
    if isinstance(when, timedelta):
        return None
    return value if isinstance(value, str) else format_timestamp(when)


def _timeout(given: Mapping[str, Any], name: str) -> int | None:
    """Return milliseconds from `name` or from its spelling in seconds.

    Return None for 0, which asks for the default of the server.
    """
    field = name if name in given else name.removesuffix("_ms")
    value = given.get(field)
    if value is None:
        return None
    if isinstance(value, str):
        value, unit = parse_duration(value, field) // timedelta(milliseconds=1), 1
    else:
        unit = 1 if field == name else 1000
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        kind = "milliseconds" if unit == 1 else "seconds"
        raise InvalidRequest.of(
            field, f"must be a positive integer of {kind}, or 0 for the default"
        )
    if value * unit > MAX_TIMEOUT_MS:
        raise InvalidRequest.of(field, f"must be at most {MAX_TIMEOUT_MS // unit}")
    return value * unit or None


def _merged(data: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    for source in (data, options):
        for name in ("metadata", "meta"):
            if source.get(name) is not None:
                meta.update(_object(source, name, InvalidMetadata) or {})
    return meta


def _object(
    data: Mapping[str, Any], name: str, error: type[OJSError] = InvalidRequest
) -> dict[str, Any] | None:
    value = data.get(name)
    if value is not None and not isinstance(value, dict):
        raise error.of(name, "must be an object")
    return value


def _extra(data: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    extra = {key: value for key, value in data.items() if key not in _KNOWN}
    unknown = {key: value for key, value in options.items() if key not in OPTIONS}
    if unknown:
        extra["options"] = unknown
    return extra
