"""The configuration of a queue (ojs-queue-config §6, backpressure §6.2).

The JSON object is stored as it was sent, unknown fields included. `QueueConfig` has the
values that apply.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, Self, TypeVar

from django_ojs.not_installed import line_for_queue_field
from django_ojs.spec import json, retry_policy
from django_ojs.spec.envelope import MAX_TIMEOUT_MS, check_queue
from django_ojs.spec.errors import InvalidRequest, OJSError, UnsupportedFeature
from django_ojs.spec.field_checks import Check, Object, count, duration, names, share
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import State
from django_ojs.spec.suggestions import did_you_mean, is_misspelt
from django_ojs.spec.times import parse_duration

T = TypeVar("T")

Strategy = Literal["reject", "block", "drop_oldest"]

STRATEGIES: Final = ("reject", "block", "drop_oldest")

#: The share of the bound above which a backpressure warning is raised (backpressure §6.2).
WARNING_THRESHOLD: Final = 0.8

#: Every enqueue reads the configuration, so it must stay small.
MAX_BYTES: Final = 64 * 1024

#: The flat spellings of queue-config §6.1, and the member of `backpressure` that each stands for.
FLAT: Final = {
    "max_size": "max_depth",
    "max_size_bytes": "max_size_bytes",
    "overflow_policy": "strategy",
}

#: The limits that this server does not enforce, and the values that ask for no limit.
_UNSUPPORTED: Final[dict[str, tuple[object, ...]]] = {
    "dead_letter_max_size": (0,),
    "dead_letter.retention.max_count": (0,),
}

#: States that have a retention.
RETAINED: Final = (State.COMPLETED, State.DISCARDED, State.CANCELLED)


#: The name of the default policy (ojs-queue-config §7.1).
DEFAULT_POLICY: Final = "_default"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueFields:
    """The fields of a queue's configuration that an extension declares."""

    #: By the name of the field.
    checks: Mapping[str, Check]
    #: Functions that read the effective values, by the class of what they return, which is also
    #: what `QueueConfig.part` takes. They return None if the values ask for nothing.
    read: Mapping[type, Callable[[Mapping[str, Any]], object | None]]
    #: The only values that are accepted for some members, by the dotted names of these.
    supported: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    #: Checks each new job of a queue whose values ask for something. Raises InvalidRequest.
    check_job: Callable[[Any], None] | None = None


class _Known:
    """All fields: those of the core, and those of extensions."""

    def __init__(self, declared: Iterable[QueueFields] = ()) -> None:
        self.checks: dict[str, Check] = dict(_CHECKS)
        self.declared: Final = tuple(declared)
        self.supported: dict[str, tuple[object, ...]] = dict(_UNSUPPORTED)
        for each in self.declared:
            self.checks.update(each.checks)
            self.supported.update(each.supported)


def declare(fields: Iterable[QueueFields]) -> None:
    """Replace the fields of extensions by these."""
    global _known
    _known = _Known(fields)


def is_known(name: str) -> bool:
    """Say whether the core or an extension that is installed has a field of this name."""
    return name in _known.checks


@dataclass(frozen=True, kw_only=True, slots=True)
class Backpressure:
    """The bounds of a queue; None is unbounded."""

    max_depth: int | None = None
    max_size_bytes: int | None = None
    strategy: Strategy = "reject"
    warning_threshold: float = WARNING_THRESHOLD


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueConfig:
    """The effective configuration of a queue: its own values over the default policy's (§7.2).

    `values` is the JSON object that the API shows.
    """

    backpressure: Backpressure = Backpressure()
    max_envelope_bytes: int | None = None
    #: Patterns of job types and of names of producers; None permits all.
    allowed_job_types: tuple[str, ...] | None = None
    producers: tuple[str, ...] | None = None
    #: The next three are for jobs that have no value of their own.
    default_timeout_ms: int | None = None
    visibility_timeout_ms: int | None = None
    default_retry: RetryPolicy | None = None
    #: The queue to which its dead letters are moved.
    dead_letter_queue: str | None = None
    #: How long ended jobs are kept, by state and by whether a job is a dead letter.
    retention: Mapping[tuple[State, bool], timedelta] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: What the `read` functions of extensions returned, by its class.
    parts: Mapping[type, Any] = field(default_factory=dict)
    #: Checks of each new job of the queue.
    job_checks: tuple[Callable[[Any], None], ...] = ()

    @classmethod
    def of(cls, own: Mapping[str, Any], default: Mapping[str, Any] | None = None) -> Self:
        """Return the effective configuration: a queue's own values over the default policy's."""
        values = inherit(own, default or {})
        bounds = values.get("backpressure", {})
        parts: dict[type, Any] = {}
        job_checks = []
        for declared in _known.declared:
            read = {kind: read(values) for kind, read in declared.read.items()}
            found = {kind: value for kind, value in read.items() if value is not None}
            parts |= found
            if found and declared.check_job is not None:
                job_checks.append(declared.check_job)
        return cls(
            backpressure=Backpressure(
                max_depth=bounds.get("max_depth") or None,
                max_size_bytes=bounds.get("max_size_bytes") or None,
                strategy=bounds.get("strategy") or "reject",
                warning_threshold=_or(bounds.get("warning_threshold"), WARNING_THRESHOLD),
            ),
            max_envelope_bytes=values.get("max_envelope_bytes") or None,
            allowed_job_types=_patterns(values.get("allowed_job_types")),
            producers=_patterns(values.get("producers")),
            default_timeout_ms=_milliseconds(values.get("default_timeout") or 0),
            visibility_timeout_ms=_milliseconds(values.get("visibility_timeout") or 0),
            default_retry=_retry(values.get("default_retry")),
            dead_letter_queue=values.get("dead_letter_queue"),
            retention=retention_of(values),
            values=_with_flat_spelling(values),
            parts=parts,
            job_checks=tuple(job_checks),
        )

    def part(self, kind: type[T]) -> T | None:
        """Return what the fields of an extension mean, or None if they ask for nothing."""
        return self.parts.get(kind)

    def allows_type(self, job_type: str) -> bool:
        """Whether jobs of a type may be enqueued (§6.5)."""
        return _matches([job_type], self.allowed_job_types)

    def allows_producer(self, names: Iterable[str]) -> bool:
        """Whether a caller with one of these names may enqueue (§6.5)."""
        return _matches(names, self.producers)


def check(
    given: object, *, max_envelope_bytes: int, path: str = "", default_policy: bool = False
) -> dict[str, Any]:
    """Check a configuration, or a part of one, and return it.

    `path` is its field in the request, `max_envelope_bytes` the server's own limit. Raises
    InvalidRequest, and UnsupportedFeature for a limit that is not enforced.
    """
    prefix, whole = f"{path}." if path else "", path or "the configuration"
    if not isinstance(given, dict):
        raise InvalidRequest(f"{whole} must be an object", details={"field": path})
    json.check(given, whole, error=InvalidRequest)
    if len(json.dumps(given).encode()) > MAX_BYTES:
        raise InvalidRequest.of(whole, f"must be at most {MAX_BYTES} bytes of JSON")
    for name, value in given.items():
        if name.startswith("_"):
            raise InvalidRequest.of(whole, "must not have names that begin with an underscore")
        # A misspelt name would be stored as a field of a later version, and have no effect.
        _check_names({name: value}, _known.checks, prefix, if_misspelt=True)
        if value is not None and name in _known.checks:
            _known.checks[name](value, f"{prefix}{name}")
            _check_supported(name, value, prefix)
    if (given.get("max_envelope_bytes") or 0) > max_envelope_bytes:
        rule = f"must be at most {max_envelope_bytes}, the limit of the server"
        raise InvalidRequest.of(f"{prefix}max_envelope_bytes", rule)
    bounds = merge({}, given).get("backpressure", {})
    if default_policy and bounds.get("strategy") == "drop_oldest":
        # It discards jobs, so it must be set for a named queue (backpressure §5.3).
        rule = "must not be drop_oldest in the default policy"
        raise InvalidRequest.of(f"{prefix}backpressure.strategy", rule)
    return given


def _check_supported(name: str, value: object, prefix: str) -> None:
    # A limit that is accepted and not enforced would be taken for one that holds.
    if name in _known.supported and value not in _known.supported[name]:
        rule = "is not supported: this server does not act on it"
        raise UnsupportedFeature.of(f"{prefix}{name}", rule)
    if isinstance(value, Mapping):
        for member, inner in value.items():
            if inner is not None:
                _check_supported(f"{name}.{member}", inner, prefix)


def check_names(given: Mapping[str, Any], path: str) -> None:
    """Reject unknown fields, at any depth. Raises InvalidRequest.

    This is for settings. JSON of clients may carry fields of later versions, which are stored as
    sent.
    """
    _check_names(given, _known.checks, f"{path}.", if_misspelt=False)


def _check_names(
    given: Mapping[str, Any],
    known: Mapping[str, Check],
    prefix: str,
    *,
    if_misspelt: bool,
) -> None:
    """Reject unknown fields, at any depth. With `if_misspelt`, reject only misspelt ones."""
    for name, value in given.items():
        field_path = f"{prefix}{name}"
        if name not in known:
            if value is not None and (line := line_for_queue_field(name)) is not None:
                error = UnsupportedFeature if if_misspelt else InvalidRequest
                raise error.of(field_path, f"needs an extension that is not installed. {line}")
            if if_misspelt and not is_misspelt(name, tuple(known)):
                continue
            suggestion = did_you_mean(name, tuple(known))
            raise InvalidRequest.of(field_path, f"is not a field of a queue. {suggestion}")
        if not isinstance(value, Mapping):
            continue
        check_member = known[name]
        if isinstance(check_member, Object):
            members = check_member.members_of(value)
            _check_names(value, members, f"{field_path}.", if_misspelt=if_misspelt)
        elif check_member is _policy:
            check_policy = retry_policy.check_spelling if if_misspelt else retry_policy.check_names
            check_policy(value, field_path)


def merge(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored configuration with `changes` applied, by top-level key.

    A null removes the queue's own value. A bound in the flat spelling changes only that member of
    `backpressure`; a `backpressure` in the same request wins over it.
    """
    merged = dict(stored)
    flat = {member: changes[name] for name, member in FLAT.items() if name in changes}
    if flat:
        merged["backpressure"] = {**(stored.get("backpressure") or {}), **flat}
    for name, value in changes.items():
        if name in FLAT:
            continue
        if name == "backpressure" and value is not None:
            merged[name] = {**flat, **value}
        elif value is not None:
            merged[name] = value
        elif name != "backpressure" or not flat:
            merged.pop(name, None)
    return merged


def inherit(own: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a queue's own values over the default policy's, objects by member (§7.2)."""
    values = dict(default)
    for name, value in own.items():
        below = values.get(name)
        if isinstance(value, dict) and isinstance(below, dict):
            value = {**below, **value}
        values[name] = value
    return values


def _with_flat_spelling(values: Mapping[str, Any]) -> dict[str, Any]:
    bounds = values.get("backpressure") or {}
    flat = {name: bounds[member] for name, member in FLAT.items() if member in bounds}
    return {**values, **flat}


def retention_of(values: Mapping[str, Any]) -> dict[tuple[State, bool], timedelta]:
    """Return the retention in a configuration, by state and whether a job is a dead letter."""
    kept = values.get("retention") or {}
    found = {(state, False): kept.get(state.value) for state in RETAINED}
    # The dead-letter document and queue-config spell this differently.
    dead = ((values.get("dead_letter") or {}).get("retention") or {}).get("max_age")
    found[State.DISCARDED, True] = dead or values.get("dead_letter_ttl")
    return {kind: parse_duration(age, "") for kind, age in found.items() if age is not None}


def _patterns(value: Any) -> tuple[str, ...] | None:
    return None if value is None or "*" in value else tuple(value)


def _matches(names: Iterable[str], patterns: tuple[str, ...] | None) -> bool:
    # Only the asterisk is special, but fnmatch would treat `[` and `?` as special too.
    return patterns is None or any(
        fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))
        for name in names
        for pattern in patterns
    )


def _or(value: Any, default: float) -> float:
    return default if value is None else value


def _strategy(value: object, path: str) -> None:
    if value not in STRATEGIES:
        raise InvalidRequest.of(path, f"must be one of {', '.join(STRATEGIES)}")


def _seconds(value: object, path: str) -> None:
    if isinstance(value, str):
        duration(value, path)
    elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidRequest.of(path, "must be an integer of seconds, or an ISO 8601 duration")
    assert isinstance(value, str | int)
    if (_milliseconds(value) or 0) > MAX_TIMEOUT_MS:
        raise InvalidRequest.of(path, f"must be at most {MAX_TIMEOUT_MS // 1000} seconds")


def _milliseconds(value: str | int) -> int | None:
    """Return a checked timeout, in seconds or as a duration; None for 0, which means no default."""
    if isinstance(value, str):
        return max(1, parse_duration(value, "") // timedelta(milliseconds=1))
    return value * 1000 or None


def _retry(value: Any) -> RetryPolicy | None:
    return None if value is None else retry_policy.parse(value, default=retry_policy.DEFAULT)


def _policy(value: object, path: str) -> None:
    try:
        retry_policy.parse(value, default=retry_policy.DEFAULT)
    except OJSError as error:
        raise error.with_details(field=path) from None


def _name(value: object, path: str) -> None:
    check_queue(value, field=path)


_CHECKS: Final[dict[str, Check]] = {
    "backpressure": Object(
        max_depth=count, max_size_bytes=count, strategy=_strategy, warning_threshold=share
    ),
    "max_size": count,
    "max_size_bytes": count,
    "overflow_policy": _strategy,
    "max_envelope_bytes": count,
    "visibility_timeout": _seconds,
    "default_timeout": _seconds,
    "default_retry": _policy,
    "retention": Object(**{state.value: duration for state in RETAINED}),
    "dead_letter_queue": _name,
    "dead_letter_max_size": count,
    "dead_letter_ttl": duration,
    "dead_letter": Object(retention=Object(max_age=duration, max_count=count)),
    "allowed_job_types": names,
    "producers": names,
}

_known = _Known()
