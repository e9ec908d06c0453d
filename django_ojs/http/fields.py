"""Readers of fields of bodies and queries. An InvalidRequest names the field and the rule."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django_ojs.spec import times
from django_ojs.spec.envelope import MAX_TIMEOUT_MS
from django_ojs.spec.errors import InvalidRequest

S = TypeVar("S", bound=str)
V = TypeVar("V")


def required(data: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these fields that is not missing; null counts as missing."""
    for name in names:
        if data.get(name) is not None:
            return data[name]
    raise InvalidRequest.of(names[0], "is required")


def string(data: Mapping[str, Any], name: str) -> str | None:
    """Return a string, or None where it is missing."""
    return _typed(data, name, str, "must be a string")


def text(data: Mapping[str, Any], name: str, max_length: int = 255) -> str:
    """Return a short printable string, empty where it is missing."""
    value = string(data, name) or ""
    if not _is_text(value, max_length):
        raise InvalidRequest.of(name, f"must be at most {max_length} printable characters")
    return value


def texts(data: Mapping[str, Any], name: str, limit: int, max_length: int = 255) -> tuple[str, ...]:
    """Return an array of at most `limit` short printable strings, empty where it is missing."""
    values = strings(data, name) or []
    if len(values) > limit:
        raise InvalidRequest.of(name, f"must hold at most {limit} strings")
    if not all(_is_text(value, max_length) for value in values):
        raise InvalidRequest.of(
            name, f"must hold strings of at most {max_length} printable characters"
        )
    return tuple(values)


def integer(
    data: Mapping[str, Any], name: str, *, minimum: int = 0, maximum: int = MAX_TIMEOUT_MS
) -> int | None:
    """Return an integer within bounds, or None where it is missing. A boolean is no integer."""
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InvalidRequest.of(name, f"must be an integer from {minimum} to {maximum}")
    return value


def boolean(data: Mapping[str, Any], name: str) -> bool:
    """Return a boolean, False where it is missing."""
    return bool(_typed(data, name, bool, "must be a boolean"))


def object_(data: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return an object, or None where it is missing."""
    return _typed(data, name, dict, "must be an object")


def strings(data: Mapping[str, Any], name: str) -> list[str] | None:
    """Return an array of strings, or None where it is missing."""
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidRequest.of(name, "must be an array of strings")
    return value


def choice(data: Mapping[str, Any], name: str, choices: Sequence[S], default: S) -> S:
    """Return one of the choices, the default where it is missing."""
    value = data.get(name)
    if value is None:
        return default
    for each in choices:
        if each == value:
            return each
    raise InvalidRequest.of(name, f"must be one of {', '.join(choices)}")


def milliseconds(data: Mapping[str, Any], name: str) -> timedelta | None:
    """Return a positive duration in whole milliseconds, or None where it is missing."""
    value = integer(data, name, minimum=1)
    return None if value is None else timedelta(milliseconds=value)


def timestamp(data: Mapping[str, Any], name: str) -> datetime | None:
    """Return a timestamp of RFC 3339 with an offset, or None if it is missing."""
    value = string(data, name)
    return None if value is None else times.parse_timestamp(value, name)


def confirm(data: Mapping[str, Any]) -> None:
    """Raise InvalidRequest unless `confirm` is true (admin-api §4)."""
    if data.get("confirm") is not True:
        raise InvalidRequest.of("confirm", "must be true: this cannot be undone.")


def query_integer(
    query: Mapping[str, str], name: str, *, default: int, minimum: int = 0, maximum: int
) -> int:
    """Return an integer of the query. A number above the maximum counts as the maximum."""
    given = query.get(name, "")
    if not given:
        return default
    # int() alone accepts spaces, underscores and the digits of every script.
    digits = given.lstrip("0") or "0"
    # A number of more digits is above every maximum, and a very long one would take long.
    if not (given.isascii() and given.isdigit()) or (value := int(digits[:10])) < minimum:
        raise InvalidRequest.of(name, f"must be an integer of at least {minimum}")
    return min(value, maximum)


def query_timestamp(query: Mapping[str, str], name: str) -> datetime | None:
    """Return a timestamp of the query, or None where it is missing.

    Query parsing turns the plus of an unescaped offset into a space; this reverts it.
    """
    given = query.get(name, "")
    return times.parse_timestamp(given.replace(" ", "+"), name) if given else None


def query_list(values: Sequence[str]) -> list[str]:
    """Return the names in a parameter that may be repeated and contain commas."""
    return [name for value in values for part in value.split(",") if (name := part.strip())]


def _typed(data: Mapping[str, Any], name: str, kind: type[V], rule: str) -> V | None:
    value = data.get(name)
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest.of(name, rule)
    return value


def _is_text(value: str, max_length: int) -> bool:
    # NUL and lone surrogates are not printable.
    return len(value) <= max_length and value.isprintable()
