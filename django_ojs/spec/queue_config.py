"""The configuration of a queue (ojs-queue-config §6, backpressure §6.2).

The JSON object is stored as it was sent, unknown fields included; `QueueConfig` is its value.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, Self

from django_ojs.extensions.limits.rate_limit import RateLimit, check_number, check_on_limit
from django_ojs.extensions.tenants.spec import (
    DEFAULT_TENANT,
    MAX_WEIGHT,
    TenantFairness,
    TenantLimits,
    is_tenant_id,
)
from django_ojs.extensions.tenants.spec import STRATEGIES as FAIRNESS_STRATEGIES
from django_ojs.spec import json, retry_policy
from django_ojs.spec.envelope import MAX_TIMEOUT_MS, check_queue
from django_ojs.spec.errors import InvalidRequest, OJSError, UnsupportedFeature
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.states import State
from django_ojs.spec.suggestions import did_you_mean, is_misspelt, one_of
from django_ojs.spec.times import parse_duration

Strategy = Literal["reject", "block", "drop_oldest"]

STRATEGIES: Final = ("reject", "block", "drop_oldest")

#: The share of the bound above which a backpressure warning is raised (backpressure §6.2).
WARNING_THRESHOLD: Final = 0.8

#: The limits of the queue itself.
LIMITS: Final = frozenset({"concurrency", "rate_limit"})

#: Every enqueue reads the configuration, so it must stay small.
MAX_BYTES: Final = 64 * 1024

#: The flat spelling of queue-config §6.1, and the member of `backpressure` each is.
FLAT: Final = {
    "max_size": "max_depth",
    "max_size_bytes": "max_size_bytes",
    "overflow_policy": "strategy",
}

#: What this server does not do, and the values that ask for nothing.
UNSUPPORTED: Final[dict[str, tuple[object, ...]]] = {
    "rate_limit.on_limit": ("wait",),
    "dead_letter_max_size": (0,),
    "dead_letter.retention.max_count": (0,),
}

#: States that have a retention.
RETAINED: Final = (State.COMPLETED, State.DISCARDED, State.CANCELLED)


#: The name of the default policy (ojs-queue-config §7.1).
DEFAULT_POLICY: Final = "_default"


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
    #: On running and on starting its jobs.
    rate_limit: RateLimit | None = None
    #: Patterns of job types and of names of producers; None permits all.
    allowed_job_types: tuple[str, ...] | None = None
    producers: tuple[str, ...] | None = None
    tenant_limits: TenantLimits | None = None
    tenant_fairness: TenantFairness | None = None
    #: For jobs that have no value of their own.
    default_timeout_ms: int | None = None
    visibility_timeout_ms: int | None = None
    default_retry: RetryPolicy | None = None
    #: The queue in which its dead letters are.
    dead_letter_queue: str | None = None
    #: By state, and by whether a job is a dead letter.
    retention: Mapping[tuple[State, bool], timedelta] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, own: Mapping[str, Any], default: Mapping[str, Any] | None = None) -> Self:
        """Return the value of a stored configuration over that of the default policy."""
        values = inherit(own, default or {})
        bounds = values.get("backpressure", {})
        return cls(
            backpressure=Backpressure(
                max_depth=bounds.get("max_depth") or None,
                max_size_bytes=bounds.get("max_size_bytes") or None,
                strategy=bounds.get("strategy") or "reject",
                warning_threshold=_or(bounds.get("warning_threshold"), WARNING_THRESHOLD),
            ),
            max_envelope_bytes=values.get("max_envelope_bytes") or None,
            rate_limit=RateLimit.of(values),
            allowed_job_types=_patterns(values.get("allowed_job_types")),
            producers=_patterns(values.get("producers")),
            tenant_limits=TenantLimits.of(values.get("tenant_limits")),
            tenant_fairness=TenantFairness.of(values.get("tenant_fairness")),
            default_timeout_ms=_milliseconds(values.get("default_timeout") or 0),
            visibility_timeout_ms=_milliseconds(values.get("visibility_timeout") or 0),
            default_retry=_retry(values.get("default_retry")),
            dead_letter_queue=values.get("dead_letter_queue"),
            retention=retention_of(values),
            values=_with_flat_spelling(values),
        )

    @property
    def has_tenants(self) -> bool:
        """Whether the tenants of its jobs are stored."""
        return self.tenant_limits is not None or self.tenant_fairness is not None

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
        # It would be stored as a field of a later version, and have no effect.
        _check_names({name: value}, _CHECKS, prefix, if_misspelt=True)
        if value is not None and name in _CHECKS:
            _CHECKS[name](value, f"{prefix}{name}")
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
    if name in UNSUPPORTED and value not in UNSUPPORTED[name]:
        rule = "is not supported: this server does not act on it"
        raise UnsupportedFeature.of(f"{prefix}{name}", rule)
    if isinstance(value, Mapping):
        for member, inner in value.items():
            if inner is not None:
                _check_supported(f"{name}.{member}", inner, prefix)


def check_names(given: Mapping[str, Any], path: str) -> None:
    """Reject unknown fields, at any depth. Raises InvalidRequest.

    For settings: JSON of clients may carry fields of later versions, which are stored as sent.
    """
    _check_names(given, _CHECKS, f"{path}.", if_misspelt=False)


def _check_names(
    given: Mapping[str, Any],
    known: Mapping[str, Callable[[object, str], None]],
    prefix: str,
    *,
    if_misspelt: bool,
) -> None:
    """Reject unknown fields, at any depth; `if_misspelt`: only those that are misspelt."""
    for name, value in given.items():
        field_path = f"{prefix}{name}"
        if name not in known:
            if if_misspelt and not is_misspelt(name, tuple(known)):
                continue
            suggestion = did_you_mean(name, tuple(known))
            raise InvalidRequest.of(field_path, f"is not a field of a queue. {suggestion}")
        if not isinstance(value, Mapping):
            continue
        check_member = known[name]
        if isinstance(check_member, _Object):
            _check_names(value, check_member.members, f"{field_path}.", if_misspelt=if_misspelt)
        elif isinstance(check_member, _ByTenant):
            tenants = dict.fromkeys(map(str, value), check_member.check_value)
            _check_names(value, tenants, f"{field_path}.", if_misspelt=if_misspelt)
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
    # The dead-letter document's spelling and queue-config's.
    dead = ((values.get("dead_letter") or {}).get("retention") or {}).get("max_age")
    found[State.DISCARDED, True] = dead or values.get("dead_letter_ttl")
    return {kind: parse_duration(age, "") for kind, age in found.items() if age is not None}


def _patterns(value: Any) -> tuple[str, ...] | None:
    return None if value is None or "*" in value else tuple(value)


def _matches(names: Iterable[str], patterns: tuple[str, ...] | None) -> bool:
    # Only the asterisk is special: `[` and `?` would be to fnmatch.
    return patterns is None or any(
        fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))
        for name in names
        for pattern in patterns
    )


def _or(value: Any, default: float) -> float:
    return default if value is None else value


def _count(value: object, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidRequest.of(path, "must be an integer of at least 0, which means unbounded")


def _strategy(value: object, path: str) -> None:
    if value not in STRATEGIES:
        raise InvalidRequest.of(path, f"must be one of {', '.join(STRATEGIES)}")


def _share(value: object, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidRequest.of(path, "must be a number from 0.0 to 1.0")


def _duration(value: object, path: str) -> None:
    try:
        found = parse_duration(value, path) if isinstance(value, str) else timedelta(0)
    except InvalidRequest as error:
        raise error.with_details(field=path) from None
    if found <= timedelta(0):
        raise InvalidRequest.of(
            path, 'must be an ISO 8601 duration longer than zero, such as "P7D"'
        )


def _seconds(value: object, path: str) -> None:
    if isinstance(value, str):
        _duration(value, path)
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


def _boolean(value: object, path: str) -> None:
    if not isinstance(value, bool):
        raise InvalidRequest.of(path, "must be true or false")


def _weight(value: object, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_WEIGHT:
        raise InvalidRequest.of(path, f"must be an integer from 1 to {MAX_WEIGHT}")


def _fairness_strategy(value: object, path: str) -> None:
    if value not in FAIRNESS_STRATEGIES:
        raise InvalidRequest.of(path, f"must be {one_of(FAIRNESS_STRATEGIES)}")


class _ByTenant:
    """The check of an object whose names are tenants."""

    def __init__(self, check_value: Callable[[object, str], None]) -> None:
        self.check_value = check_value

    def __call__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise InvalidRequest.of(path, "must be an object with a member for each tenant")
        for tenant, inner in value.items():
            if tenant != DEFAULT_TENANT and not is_tenant_id(tenant):
                raise InvalidRequest.of(
                    path,
                    "must have the ids of tenants as names: letters, digits and . _ : -, of "
                    f"which the first is a letter or a digit, or {DEFAULT_TENANT} for jobs "
                    "without one",
                )
            if inner is not None:
                self.check_value(inner, f"{path}.{tenant}")


def _names(value: object, path: str) -> None:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise InvalidRequest.of(path, "must be an array of non-empty strings")


class _Object:
    """The check of an object and its known members."""

    def __init__(self, **members: Callable[[object, str], None]) -> None:
        self.members = members

    def __call__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise InvalidRequest.of(path, "must be an object")
        for name, check_member in self.members.items():
            if value.get(name) is not None:
                check_member(value[name], f"{path}.{name}")


class _Rate(_Object):
    """The check of an object that has a limit and a period, or neither."""

    def __call__(self, value: object, path: str) -> None:
        super().__call__(value, path)
        assert isinstance(value, dict)
        for name, other in (("limit", "period"), ("period", "limit")):
            if value.get(name) is not None and value.get(other) is None:
                raise InvalidRequest.of(f"{path}.{other}", f"is required beside {name}")


class _Fairness(_Object):
    """The check of the turns of tenants, of which weights alone switch nothing on."""

    def __call__(self, value: object, path: str) -> None:
        super().__call__(value, path)
        assert isinstance(value, dict)
        for name in self.members:
            if value.get(name) is not None and value.get("enabled") is None:
                raise InvalidRequest.of(f"{path}.enabled", f"is required beside {name}")


_RATE: Final[dict[str, Callable[[object, str], None]]] = {
    "limit": check_number,
    "period": _duration,
}

_CHECKS: Final[dict[str, Callable[[object, str], None]]] = {
    "backpressure": _Object(
        max_depth=_count, max_size_bytes=_count, strategy=_strategy, warning_threshold=_share
    ),
    "max_size": _count,
    "max_size_bytes": _count,
    "overflow_policy": _strategy,
    "max_envelope_bytes": _count,
    "concurrency": _count,
    "rate_limit": _Rate(
        **_RATE,
        max_per_second=check_number,
        concurrency=_count,
        rate=_Rate(**_RATE),
        throttle=_Rate(**_RATE),
        on_limit=check_on_limit,
    ),
    "visibility_timeout": _seconds,
    "default_timeout": _seconds,
    "default_retry": _policy,
    "retention": _Object(**{state.value: _duration for state in RETAINED}),
    "dead_letter_queue": _name,
    "dead_letter_max_size": _count,
    "dead_letter_ttl": _duration,
    "dead_letter": _Object(retention=_Object(max_age=_duration, max_count=_count)),
    "allowed_job_types": _names,
    "producers": _names,
    "tenant_limits": _Object(
        max_queue_depth=_count, tenants=_ByTenant(_Object(max_queue_depth=_count))
    ),
    "tenant_fairness": _Fairness(
        enabled=_boolean,
        strategy=_fairness_strategy,
        weights=_ByTenant(_weight),
        default_weight=_weight,
    ),
}
