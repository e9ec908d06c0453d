"""The limits that a job is sent with, and their key (ojs-rate-limiting §6, §7)."""

import hashlib
import re
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, Final, Literal

from django_ojs.extensions.limits.rate_limit import check_number, check_on_limit
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.spec.times import format_duration, parse_duration, parse_seconds

_KEY: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:\-]*").fullmatch
#: The longest key, in characters, and the key of a limit that is sent without one.
MAX_KEY: Final = 255
KEY_OF_QUEUE: Final = "queue:{queue}"
#: The longest value in a key that is not replaced by its hash.
MAX_VALUE: Final = 120

#: The names that a template may use besides the parameters of the handler.
_NAMES: Final = ("type", "queue")

#: A number of starts, and their period: a timedelta, seconds, or an ISO 8601 duration.
PerPeriod = tuple[int, timedelta | float | str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLimitPolicy:
    """Limits that all jobs with the same key share.

    `key` is a template, such as "customer:{customer_id}", which may name parameters of the handler,
    `{type}` and `{queue}`. `concurrency` is how many of the jobs run at the same time, where 0
    means none. `rate` and `throttle` are how many start in a period, such as `(100,
    timedelta(minutes=1))`; a throttle spaces them evenly. `on_limit` is what happens to a job that
    meets a limit: it waits; with "reschedule", it is scheduled for when the limit is expected to
    have room; with "drop", it is discarded.
    """

    key: str
    concurrency: int | None = None
    rate: PerPeriod | Mapping[str, Any] | None = None
    throttle: PerPeriod | Mapping[str, Any] | None = None
    on_limit: Literal["wait", "reschedule", "drop"] = "wait"

    def render(self) -> dict[str, Any]:
        """Return the policy as JSON, with the template as its key."""
        found = {
            "key": self.key,
            "concurrency": self.concurrency,
            "rate": _render_rate(self.rate, "rate_limit.rate"),
            "throttle": _render_rate(self.throttle, "rate_limit.throttle"),
            "on_limit": None if self.on_limit == "wait" else self.on_limit,
        }
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def of(cls, given: object) -> "RateLimitPolicy":
        """Return the policy that Python code describes, checked. Raises InvalidRequest."""
        if isinstance(given, Mapping):
            for name in given:
                if name not in _FIELDS:
                    rule = f"is not a field of a rate limit. {did_you_mean(str(name), _FIELDS)}"
                    raise InvalidRequest.of(f"rate_limit.{name}", rule)
            if given.get("key") is None:
                rule = 'is required, such as "customer:{customer_id}" or "type:{type}"'
                raise InvalidRequest.of("rate_limit.key", rule)
            given = cls(**given)
        if not isinstance(given, cls):
            raise InvalidRequest.of("rate_limit", "must be a RateLimitPolicy or a mapping")
        # The template is replaced by a key, because a template is no valid key.
        check({**given.render(), "key": "key"}, "rate_limit")
        check_template(given.key, None)
        return given

    def for_job(self, *, type: str, queue: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON of the policy with the key of one job. Raises InvalidRequest."""
        key = key_of(self.key, type=type, queue=queue, arguments=arguments)
        return {**self.render(), "key": key}

    def check_parameters(self, parameters: Collection[str]) -> None:
        """Check that the key names only parameters of a handler. Raises InvalidRequest."""
        check_template(self.key, parameters)


_FIELDS: Final = tuple(each.name for each in fields(RateLimitPolicy))


def check_template(template: object, parameters: Collection[str] | None) -> None:
    """Check the names in the template of a key. If `parameters` is None, any name may be one.

    Raises InvalidRequest.
    """
    if not isinstance(template, str) or not template:
        raise InvalidRequest.of("rate_limit.key", "must be a non-empty string")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InvalidRequest.of("rate_limit.key", f"is not a template: {error}") from None
    known = None if parameters is None else (*parameters, *_NAMES)
    for _literal, name, *_rest in parts:
        if name is None:
            continue
        first = re.split(r"[.\[]", name)[0]
        if not first.isidentifier() or (known is not None and first not in known):
            rule = f"names {first!r}, which is not a parameter. {did_you_mean(first, known or ())}"
            raise InvalidRequest.of("rate_limit.key", rule)


def key_of(template: str, *, type: str, queue: str, arguments: Mapping[str, Any]) -> str:
    """Return the key of a job. Raises InvalidRequest when a name in the template has no argument.

    A value that is longer than 120 characters, or has characters that a key cannot have, is
    replaced by its hash. So is a value after which it would not be clear where the next one begins.
    Different values therefore give different keys, unless one of them is the hash of the other.
    """
    try:
        key = _formatted(template, {"type": type, "queue": queue, **arguments})
    except (LookupError, AttributeError, ValueError, TypeError) as error:
        rule = f"cannot be made of {template!r} and the arguments: {error!r}"
        raise InvalidRequest.of("rate_limit.key", rule) from None
    check_key(key, "rate_limit.key")
    return key


def hide_arguments(
    key: str,
    templates: Iterable[tuple[str, str]],
    is_hidden: Callable[[str], bool],
    replacement: str,
) -> str | None:
    """Return a key with its hidden arguments replaced, or None if no template fits it.

    Each template comes with its job type. `is_hidden` returns whether the argument, attribute or
    item with a name has to be replaced. If several templates fit, the one that hides most
    is used.
    """
    found: list[tuple[int, str]] = []
    for template, type in (*templates, (KEY_OF_QUEUE, "")):
        pattern, names = _pattern_of(template, type)
        if (match := pattern.fullmatch(key)) is not None:
            parts = [
                (text, bool(hidden) and any(map(is_hidden, hidden)))
                for text, hidden in zip(match.groups(), names, strict=True)
            ]
            visible = sum(len(text) for text, is_replaced in parts if not is_replaced)
            shown = "".join(replacement if replaced else text for text, replaced in parts)
            found.append((visible, shown))
    return min(found)[1] if found else None


@lru_cache(maxsize=1000)
def _pattern_of(template: str, type: str) -> tuple[re.Pattern[str], tuple[tuple[str, ...], ...]]:
    """Return a pattern of the keys of a template, and the names of the arguments in each group."""
    groups: list[str] = []
    names: list[tuple[str, ...]] = []
    for part in _parts_of(template):
        if isinstance(part, str):
            groups.append(f"({re.escape(part)})")
            names.append(())
            continue
        # The pattern of a hash comes first, because only its length separates two adjacent values.
        groups.append(f"({re.escape(type)})" if part.name == "type" else r"([0-9a-f]{32}|.+?)")
        names.append(() if part.name in _NAMES else tuple(re.findall(r"\w+", part.name)))
    return re.compile("".join(groups)), tuple(names)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value in a template, as `string.Formatter.parse` returns it.

    `beside` are the characters that separate it from other values. `is_adjacent` is whether no text
    separates it from another one.
    """

    name: str
    format_spec: str
    conversion: str | None
    beside: frozenset[str] = frozenset()
    is_adjacent: bool = False

    def accepts(self, text: str) -> bool:
        """Return whether a key with this text still shows where the value begins and ends.

        The job type may have any characters, because the other values determine where it ends.
        """
        return self.name == "type" or not (self.is_adjacent or self.beside.intersection(text))


@lru_cache(maxsize=1000)
def _parts_of(template: str) -> tuple[str | _Value, ...]:
    """Return the texts and values of a template; no text is empty or next to another one."""
    parts: list[str | _Value] = []
    for literal, name, format_spec, conversion in string.Formatter().parse(template):
        if literal and parts and isinstance(parts[-1], str):
            parts[-1] += literal  # `parse` ends a literal at each "{{".
        elif literal:
            parts.append(literal)
        if name is not None:
            parts.append(_Value(name, format_spec or "", conversion))
    return tuple(
        part if isinstance(part, str) else _beside(part, parts[:at], parts[at + 1 :])
        for at, part in enumerate(parts)
    )


def _beside(value: _Value, before: Sequence[str | _Value], after: Sequence[str | _Value]) -> _Value:
    characters = set[str]()
    # A text before the first value or after the last one is the same in all keys.
    if len(before) > 1 and isinstance(before[-1], str):
        characters.add(before[-1][-1])
    if len(after) > 1 and isinstance(after[0], str):
        characters.add(after[0][0])
    is_adjacent = any(isinstance(part, _Value) for part in (*before[-1:], *after[:1]))
    return replace(value, beside=frozenset(characters), is_adjacent=is_adjacent)


def _formatted(template: str, values: Mapping[str, Any]) -> str:
    formatter = _Formatter()
    found = []
    for part in _parts_of(template):
        if isinstance(part, str):
            found.append(part)
            continue
        value, _first = formatter.get_field(part.name, (), values)
        if part.conversion:
            value = formatter.convert_field(value, part.conversion)
        format_spec = part.format_spec and formatter.vformat(part.format_spec, (), values)
        text = formatter.format_field(value, format_spec)
        found.append(text if part.accepts(text) else _hash(text))
    return "".join(found)


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        text = str(super().format_field(value, format_spec))
        return text if _KEY(text) and len(text) <= MAX_VALUE else _hash(text)


def check(policy: object, field: str) -> None:
    """Check the limits with which a job is sent (§6.1). Raises InvalidRequest naming the member."""
    if not isinstance(policy, Mapping):
        raise InvalidRequest.of(field, "must be an object")
    for name, value in policy.items():
        if value is not None and name in _CHECKS:
            _CHECKS[name](value, f"{field}.{name}")


#: The limits of a policy; an override replaces each of them separately.
LIMITS: Final = ("concurrency", "rate", "throttle", "max_per_second")


def parse_override(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of an override, without those that are None. Raises InvalidRequest."""
    for name in data:
        if name not in LIMITS:
            raise InvalidRequest.of(
                str(name),
                f"is not a limit. {did_you_mean(name, LIMITS)}",
            )
    found = {name: value for name, value in data.items() if value is not None}
    for name, value in found.items():
        _CHECKS[name](value, name)
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_key(value: object, field: str) -> None:
    """Check a key. Raises InvalidRequest."""
    if not isinstance(value, str) or _KEY(value) is None:
        rule = "must be letters, digits, dots, colons, _ and -, beginning with a letter or a digit"
        raise InvalidRequest.of(field, rule)
    if len(value) > MAX_KEY:
        raise InvalidRequest.of(field, f"must be at most {MAX_KEY} characters long")


def key_of_job(policy: Mapping[str, Any], queue: str) -> str:
    """Return the key that this `rate_limit` names, or else the key of the job's queue."""
    own: str | None = policy.get("key")
    return own or _key_of_queue(queue)


def _key_of_queue(queue: str) -> str:
    key = KEY_OF_QUEUE.format(queue=queue)
    return key if len(key) <= MAX_KEY else KEY_OF_QUEUE.format(queue=_hash(queue))


def stored_with(policy: Mapping[str, Any], queue: str) -> Mapping[str, Any]:
    """Return what is stored with the `rate_limit` of a job: its key, which is indexed."""
    return {"limit_key": key_of_job(policy, queue)}


def stored_key(job: Any) -> str | None:
    """Return the limit key of a stored job, or None without one."""
    key: str | None = job.options.get("limit_key")
    return key


def beyond_queue(policy: object, queue: str) -> str | None:
    """Return the member of a `rate_limit` by which its job affects jobs of other queues.

    Jobs in any queue may share a key, and wait while this job runs or pauses the key.
    """
    key = policy.get("key") if isinstance(policy, Mapping) else None
    return None if key in (None, _key_of_queue(queue)) else "rate_limit.key"


def _check_rate(value: object, field: str) -> None:
    if not isinstance(value, Mapping):
        raise InvalidRequest.of(field, "must be an object")
    check_number(value.get("limit"), f"{field}.limit")
    period = value.get("period")
    try:
        found = parse_duration(period, field) if isinstance(period, str) else timedelta(0)
    except InvalidRequest as error:
        raise error.with_details(field=f"{field}.period") from None
    if found <= timedelta(0):
        rule = 'must be an ISO 8601 duration longer than zero, such as "PT1M"'
        raise InvalidRequest.of(f"{field}.period", rule)


_CHECKS: Final[Mapping[str, Callable[[object, str], None]]] = {
    "key": check_key,
    "concurrency": partial(check_number, least=0),
    "rate": _check_rate,
    "throttle": _check_rate,
    "max_per_second": check_number,
    "on_limit": check_on_limit,
}


def _render_rate(value: object, field: str) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidRequest.of(field, "must be a number and a period: (100, timedelta(minutes=1))")
    limit, period = value
    if not isinstance(period, str):
        period = format_duration(parse_seconds(period, f"{field}.period"))
    return {"limit": limit, "period": period}
