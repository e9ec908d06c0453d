"""The unique policy of a job (ojs-unique-jobs): which jobs are duplicates, and what follows."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any, Final, Literal

from django_ojs.spec.canonical import canonical
from django_ojs.spec.errors import InvalidRequest, UniqueKeyInvalid
from django_ojs.spec.states import TERMINAL, State
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.spec.times import format_duration, parse_milliseconds, parse_seconds

OnConflict = Literal["reject", "replace", "replace_except_schedule", "ignore"]
Duration = timedelta | str | float

DIMENSIONS: Final = ("type", "queue", "args", "meta")
STRATEGIES: Final = ("reject", "replace", "replace_except_schedule", "ignore")
#: The states of a job that has not ended (§6.1).
DEFAULT_STATES: Final = tuple(state for state in State if state not in TERMINAL)


@dataclass(frozen=True, kw_only=True, slots=True, init=False)
class UniquePolicy:
    """When a job is a duplicate of another one, and what happens to it (§2).

    `keys` are dimensions: the type, which always counts, and `queue`, `args`, `meta`. `args_keys`
    selects from `args`: members of its first object, or positions; `meta_keys` selects members of
    `meta`. Without `keys`, the type and the dimensions with a selection count. `period` is a
    timedelta, an ISO 8601 or short string, or seconds, from the `created_at` of the job that
    exists. An empty list is the same as None. Raises UniqueKeyInvalid.
    """

    keys: tuple[str, ...]
    args_keys: tuple[str, ...] | None
    meta_keys: tuple[str, ...] | None
    period: timedelta | None
    states: tuple[State, ...]
    on_conflict: OnConflict
    #: Unknown fields, which responses repeat.
    extra: Mapping[str, Any] = field(hash=False, repr=False)

    def __init__(
        self,
        *,
        keys: Sequence[str] | None = None,
        args_keys: Sequence[str | int] | None = None,
        meta_keys: Sequence[str] | None = None,
        period: Duration | None = None,
        states: Sequence[str] | None = None,
        on_conflict: OnConflict | Literal["use_existing"] = "reject",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "args_keys", _names(args_keys, "args_keys", positions=True))
        put(self, "meta_keys", _names(meta_keys, "meta_keys"))
        put(self, "keys", _dimensions(keys, args=self.args_keys, meta=self.meta_keys))
        put(self, "period", _period(period))
        put(self, "states", _states(states))
        put(self, "on_conflict", _strategy(on_conflict))
        put(self, "extra", dict(extra) if extra else {})
        if "meta" in self.keys and self.meta_keys is None:
            raise UniqueKeyInvalid.of("unique.meta_keys", "is required where unique.keys has meta")
        for name in ("args", "meta"):
            if getattr(self, f"{name}_keys") is not None and name not in self.keys:
                raise UniqueKeyInvalid.of(f"unique.{name}_keys", f"needs {name} in unique.keys")

    def key(self, *, type: str, queue: str, args: Sequence[Any], meta: Mapping[str, Any]) -> str:
        """Return a job's unique key: the SHA-256 of its dimensions in 64 hexadecimal digits (§4).

        Raises UniqueKeyInvalid if `args_keys` names something that is not in `args`. A missing
        member of `meta` is left out.
        """
        parts: dict[str, Any] = {"type": type}
        if "queue" in self.keys:
            parts["queue"] = queue
        if "args" in self.keys:
            parts["args"] = args if self.args_keys is None else self._selected(args)
        if "meta" in self.keys:
            names = self.meta_keys or ()
            parts["meta"] = {name: meta[name] for name in names if name in meta}
        return hashlib.sha256(canonical(parts).encode()).hexdigest()

    def _selected(self, args: Sequence[Any]) -> dict[str, Any]:
        names = self.args_keys or ()
        selected = select(args, names)
        if selected is None:
            missing = next(name for name in names if select(args, [name]) is None)
            raise UniqueKeyInvalid.of(
                "unique.args_keys",
                f"names {missing[:64]!r}, which is not in args",
                hint="A name is a member of the first object in args, or a position such as 0.",
            )
        return selected

    def render(self) -> dict[str, Any]:
        """Return the complete policy as JSON, unknown fields included; the period in ISO 8601."""
        out: dict[str, Any] = {**self.extra, "keys": list(self.keys)}
        for name, names in (("args_keys", self.args_keys), ("meta_keys", self.meta_keys)):
            if names is not None:
                out[name] = list(names)
        if self.period is not None:
            out["period"] = format_duration(self.period)
        out["states"] = [state.value for state in self.states]
        out["on_conflict"] = self.on_conflict
        return out


def may_hold(policy: UniquePolicy) -> tuple[State, ...]:
    """Return the states in which a stored job may hold a key by a policy.

    A job that has not ended may be in another state by now, because a transition is overdue. A
    replacing policy cancels the job that exists, and one that has ended needs no replacement.
    """
    return _may_hold(policy.states, policy.on_conflict.startswith("replace"))


@cache
def _may_hold(states: tuple[State, ...], replaces: bool) -> tuple[State, ...]:
    return DEFAULT_STATES + tuple(each for each in states if each in TERMINAL and not replaces)


_FIELDS: Final = tuple(each.name for each in fields(UniquePolicy) if each.name != "extra")
_KNOWN: Final = frozenset({*_FIELDS, "key", "period_ms"})


def parse_python(data: object, *, args: Sequence[Any] | None = None) -> UniquePolicy:
    """Return the policy that Python code describes; see `parse`. `period` may be in seconds."""
    if isinstance(data, Mapping) and isinstance(data.get("period"), int | float):
        data = {**data, "period": _period(data["period"])}
    return parse(data, args=args)


def parse(data: object, *, args: Sequence[Any] | None = None) -> UniquePolicy:
    """Return the policy that an object in any dialect describes; a UniquePolicy as it is.

    The `key` of core and the JSON format stands for `keys: ["type", "args"]` and `args_keys`. If it
    names what the given `args` lack, all arguments count, or, if it names only dimensions, these.
    Raises UniqueKeyInvalid.
    """
    if isinstance(data, UniquePolicy):
        return data
    if not isinstance(data, Mapping):
        raise UniqueKeyInvalid.of("unique", "must be an object")
    for name in data:
        if name not in _KNOWN:
            # A misspelt name that is ignored would silently change the policy (§2.2).
            rule = f"may have the fields {', '.join(_FIELDS)}, and no other"
            raise UniqueKeyInvalid.of("unique", rule, hint=did_you_mean(name, _FIELDS))
    given = {name: value for name, value in data.items() if value is not None}
    milliseconds = given.pop("period_ms", None)
    if milliseconds is not None and "period" not in given:
        given["period"] = _period(milliseconds, parse_milliseconds)
    elif "period" in given and not isinstance(given["period"], str | timedelta):
        # In Python a number is in seconds, but on the wire it could be in seconds or in
        # milliseconds.
        raise UniqueKeyInvalid.of("unique.period", "must be an ISO 8601 duration such as PT1H")
    if "key" in given:
        key = given.pop("key")
        names = _names(key, "key", positions=True)
        # `keys` and `args_keys` are checked even if `key` replaces them: 0 is a wrong value, not an
        # absent one.
        if not any(_names(given.get(name), name, positions=True) for name in ("keys", "args_keys")):
            keys: tuple[str, ...] = ("type", "args")
            if names and args is not None and select(args, names) is None:
                # Some clients send the `keys` of the unique document under this name.
                keys = names if set(names) <= set(DIMENSIONS) else keys
                names = None
            given.update(keys=keys, args_keys=names)
        given["extra"] = {"key": list(key)}
    return UniquePolicy(**given)


def select(args: Sequence[Any], names: Sequence[str]) -> dict[str, Any] | None:
    """Return the values that `names` select from `args`, or None if one of them selects nothing."""
    first = next((item for item in args if isinstance(item, Mapping)), {})
    selected = {}
    for name in names:
        if name in first:
            selected[name] = first[name]
        elif is_position(name) and int(name) < len(args):
            selected[name] = args[int(name)]
        else:
            return None
    return selected


def is_position(name: str) -> bool:
    """Return whether a name in `args_keys` is a position in `args`."""
    # A longer number is beyond any array, and slow to convert.
    return name.isascii() and name.isdigit() and len(name) < 8


def _list(value: object, name: str) -> list[Any] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise UniqueKeyInvalid.of(f"unique.{name}", "must be an array of strings")
    return list(value) or None


def _names(value: object, name: str, *, positions: bool = False) -> tuple[str, ...] | None:
    entries = _list(value, name)
    if entries is None:
        return None
    if positions:
        entries = [
            str(entry) if type(entry) is int and 0 <= entry < 10**7 else entry for entry in entries
        ]
    if not all(isinstance(entry, str) for entry in entries):
        raise UniqueKeyInvalid.of(f"unique.{name}", "must be an array of strings")
    if len(set(entries)) < len(entries):
        raise UniqueKeyInvalid.of(f"unique.{name}", "must name nothing twice")
    return tuple(entries)


def _dimensions(
    value: object, *, args: tuple[str, ...] | None, meta: tuple[str, ...] | None
) -> tuple[str, ...]:
    names = _names(value, "keys")
    if names is None:
        inferred = [name for name, chosen in (("args", args), ("meta", meta)) if chosen]
        return ("type", *inferred)
    if not set(names) <= set(DIMENSIONS):
        raise UniqueKeyInvalid.of(
            "unique.keys", f"may hold {', '.join(DIMENSIONS)}, and nothing else"
        )
    return names


def _states(value: object) -> tuple[State, ...]:
    names = _names(value, "states")
    if names is None:
        return DEFAULT_STATES
    try:
        return tuple(State(name) for name in names)
    except ValueError:
        raise UniqueKeyInvalid.of(
            "unique.states",
            f"may hold {', '.join(State)}, and nothing else",
        ) from None


def _strategy(value: object) -> str:
    if value == "use_existing":
        return "ignore"
    if not isinstance(value, str) or value not in STRATEGIES:
        raise UniqueKeyInvalid.of("unique.on_conflict", f"must be one of {', '.join(STRATEGIES)}")
    return value


def _period(
    value: object, parse: Callable[[object, str], timedelta] = parse_seconds
) -> timedelta | None:
    if value is None:
        return None
    try:
        period = parse(value, "unique.period")
    except InvalidRequest as error:
        raise UniqueKeyInvalid(error.message, details=error.details) from None
    if not period:
        raise UniqueKeyInvalid.of("unique.period", "must be greater than zero")
    return period
