"""Reading an envelope from JSON, in core's dialect, the HTTP binding's, or both (core §7.1)."""

import copy
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django_ojs.spec import retry_policy
from django_ojs.spec.envelope.alike import AlikeJobs
from django_ojs.spec.envelope.fields import FIELDS, OPTIONS, SYSTEM
from django_ojs.spec.envelope.model import DEFAULT_LIMITS, SPECVERSION, Envelope, Limits
from django_ojs.spec.envelope.optional_checks import known_to_extensions
from django_ojs.spec.envelope.validate import check_size
from django_ojs.spec.errors import InvalidArgs, InvalidMetadata, InvalidRequest, OJSError
from django_ojs.spec.ids import parse_id, uuid7
from django_ojs.spec.retry_policy import DEFAULT, RetryPolicy
from django_ojs.spec.times import format_timestamp

_READ: Final = tuple(
    (field.name, field.spellings, field.read, field.text) for field in FIELDS if field.read
)
_RETRY: Final = next(field.spellings for field in FIELDS if field.name == "retry")
#: The attributes that the core knows.
ATTRIBUTES: Final = frozenset({*SYSTEM, *OPTIONS, *(field.name for field in FIELDS), "options"})


def parse(
    data: Mapping[str, Any],
    *,
    default_retry: RetryPolicy = DEFAULT,
    limits: Limits | None = DEFAULT_LIMITS,
) -> Envelope:
    """Return the envelope that a decoded JSON object describes; `validate` checks its values.

    `default_retry` completes a partial policy; without any policy, the envelope has none and PUSH
    applies the default. `limits` is None if the object is known to be small enough. Raises
    InvalidRequest and its subclasses, and PayloadTooLarge by the size of the object as sent.
    """
    if not isinstance(data, Mapping):
        raise InvalidRequest("a job must be an object")
    options = _with_retry(data, _object(data, "options") or {})
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
    meta = _merged_meta(data, options)
    if meta:
        envelope.meta = meta
    sources = [source for source in (options, data) if not OPTIONS.isdisjoint(source)]
    if sources:
        envelope.retry = default_retry
        _read_options(envelope, sources)
        if envelope.retry is default_retry:
            envelope.retry = None
    if limits is not None:
        check_size(data, limits)
    return envelope


def parse_many(
    items: Sequence[Mapping[str, Any]],
    *,
    default_retry: RetryPolicy = DEFAULT,
    limits: Limits | None = DEFAULT_LIMITS,
) -> list[Envelope]:
    """Return the envelopes that decoded JSON objects describe, each as `parse` does.

    What objects have in common, if they differ only in `args`, is usually read once.
    """
    envelopes = []
    known: dict[str, Envelope] = {}
    for item in items:
        shared = _without_args(item)
        alike = known.get(shared)
        if alike is None or not isinstance(item.get("args"), list):
            envelope = parse(item, default_retry=default_retry, limits=limits)
            # The key of a policy may depend on the arguments.
            has_key = envelope.unique is not None or envelope.rate_limit is not None
            if not (has_key or item.get("id") or envelope.tags or envelope.extra):
                known[shared] = envelope
        else:
            if limits is not None:
                check_size(item, limits)
            envelope = copy.copy(alike)
            envelope.id, envelope.args, envelope.document = uuid7(), item["args"], item
            # Jobs share no list or object, because code may change those of one job.
            envelope.meta, envelope.tags, envelope.extra = copy.deepcopy(alike.meta), [], {}
        envelopes.append(envelope)
    return envelopes


def parse_alike(
    items: Sequence[Any],
    *,
    default_retry: RetryPolicy = DEFAULT,
    limits: Limits | None = DEFAULT_LIMITS,
) -> AlikeJobs | None:
    """Return the jobs that decoded JSON objects describe, if these differ in `args` only.

    Return None otherwise, also if one breaks a rule: then `parse` can name the rule.
    """
    if len(items) < 2 or type(items[0]) is not dict or items[0].get("id") is not None:
        return None
    shared = _without_args(items[0])
    all_args = []
    try:
        for item in items:
            if type(item) is not dict or _without_args(item) != shared:
                return None
            if type(item["args"]) is not list:
                return None
            all_args.append(item["args"])
            if limits is not None:
                check_size(item, limits)
        common = parse({**items[0], "args": []}, default_retry=default_retry, limits=limits)
    except (KeyError, OJSError):
        return None
    return AlikeJobs.of(common, all_args)


def _without_args(item: Mapping[str, Any]) -> str:
    # The values are not compared by `==`: 1, 1.0 and True are equal, but different JSON.
    return repr({**item, "args": None})


def _read_options(envelope: Envelope, sources: list[Mapping[str, Any]]) -> None:
    for name, spellings, read, text in _READ:
        for spelling, value in _given(sources, spellings):
            found = read(value, spelling, envelope)
            setattr(envelope, name, found)
            if text is not None:
                setattr(envelope, text, when_text(value, found))


def _given(sources: list[Mapping[str, Any]], spellings: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return the spelling that counts and its value, or an empty list. A null counts as missing."""
    for source in sources:
        for spelling in spellings:
            value = source.get(spelling)
            if value is not None:
                return [(spelling, value)]
    return []


def when_text(value: object, when: datetime | timedelta) -> str | None:
    """Return the text of a time that responses repeat, as the client sent it; None if relative."""
    if isinstance(when, timedelta):
        return None
    return value if isinstance(value, str) else format_timestamp(when)


def _merged_meta(data: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
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


def _with_retry(data: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with their `max_attempts` in the retry policy, unless that has its own."""
    if "max_attempts" not in options:
        return options
    options = dict(options)
    attempts = options.pop("max_attempts")
    # A wrong value is rejected even where it has no effect.
    retry_policy.parse({"max_attempts": attempts}, default=DEFAULT)
    policy: Any = next((value for _, value in _given([options, data], _RETRY)), {})
    if attempts is not None and isinstance(policy, Mapping) and policy.get("max_attempts") is None:
        options["retry"] = {**policy, "max_attempts": attempts}
    return options


def _extra(data: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    extra = {key: value for key, value in data.items() if key not in ATTRIBUTES}
    unknown = {key: value for key, value in options.items() if key not in OPTIONS}
    if extra or unknown:
        # As with the attributes of the core, `options` wins, and a null counts as missing.
        for name in known_to_extensions.keys() & (extra.keys() | unknown.keys()):
            given = _given([unknown, extra], (name,))
            unknown.pop(name, None)
            extra.pop(name, None)
            extra.update(given)
    if unknown:
        extra["options"] = unknown
    return extra
