"""Reading the fields of bodies and queries: each refusal names the field and the rule."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django_ojs.spec import times
from django_ojs.spec.envelope import MAX_TIMEOUT_MS
from django_ojs.spec.errors import InvalidRequest

_TRUE: Final = frozenset({"true", "1"})
_FALSE: Final = frozenset({"false", "0"})


def refuse(field: str, rule: str) -> InvalidRequest:
    """Make the error for a field that breaks a rule: `raise refuse("count", "must be …")`."""
    return InvalidRequest.of(field, rule)


def required(data: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these fields that is there; null is not there. Raises InvalidRequest."""
    for name in names:
        if data.get(name) is not None:
            return data[name]
    raise refuse(names[0], "is required")


def string(data: Mapping[str, Any], name: str) -> str | None:
    """Return a string, or None where it is left out."""
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise refuse(name, "must be a string")
    return value


def text(data: Mapping[str, Any], name: str, longest: int = 255) -> str:
    """Return a short printable string; what is left out is empty."""
    value = string(data, name) or ""
    if not _is_text(value, longest):
        raise refuse(name, f"must be at most {longest} printable characters")
    return value


def texts(data: Mapping[str, Any], name: str, most: int, longest: int = 255) -> tuple[str, ...]:
    """Return an array of short printable strings; what is left out is empty."""
    values = strings(data, name) or []
    if len(values) > most:
        raise refuse(name, f"must hold at most {most} strings")
    if not all(_is_text(value, longest) for value in values):
        raise refuse(name, f"must hold strings of at most {longest} printable characters")
    return tuple(values)


def integer(
    data: Mapping[str, Any], name: str, *, minimum: int = 0, maximum: int = MAX_TIMEOUT_MS
) -> int | None:
    """Return an integer within bounds, or None where it is left out. A boolean is none."""
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise refuse(name, f"must be an integer from {minimum} to {maximum}")
    return value


def boolean(data: Mapping[str, Any], name: str) -> bool:
    """Return a boolean; what is left out is False."""
    value = data.get(name)
    if value is not None and not isinstance(value, bool):
        raise refuse(name, "must be a boolean")
    return bool(value)


def object_(data: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return an object, or None where it is left out."""
    value = data.get(name)
    if value is not None and not isinstance(value, dict):
        raise refuse(name, "must be an object")
    return value


def strings(data: Mapping[str, Any], name: str) -> list[str] | None:
    """Return an array of strings, or None where it is left out."""
    value = data.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise refuse(name, "must be an array of strings")
    return value


def choice(data: Mapping[str, Any], name: str, choices: Sequence[str], default: str) -> str:
    """Return one of the choices; what is left out is the default."""
    value = data.get(name)
    if value is None:
        return default
    if value not in choices:
        raise refuse(name, f"must be one of {', '.join(choices)}")
    return str(value)


def milliseconds(data: Mapping[str, Any], name: str) -> timedelta | None:
    """Return a duration given in whole milliseconds, longer than zero, or None."""
    value = integer(data, name, minimum=1)
    return None if value is None else timedelta(milliseconds=value)


def timestamp(data: Mapping[str, Any], name: str) -> datetime | None:
    """Return a moment given as RFC 3339 with an offset, or None where it is left out."""
    value = string(data, name)
    return None if value is None else times.parse_timestamp(value, name)


def confirm(data: Mapping[str, Any]) -> None:
    """Refuse what destroys unless `confirm` is literally true (admin-api §4)."""
    if data.get("confirm") is not True:
        raise InvalidRequest(
            "confirm must be true: this cannot be undone.", details={"field": "confirm"}
        )


def query_integer(
    query: Mapping[str, str], name: str, *, default: int, minimum: int = 0, maximum: int
) -> int:
    """Return an integer of the query within bounds. More than the maximum is the maximum."""
    given = query.get(name, "")
    if not given:
        return default
    # Not int() alone: it takes blanks, underscores and digits of every script.
    if not (given.isascii() and given.isdigit()) or (value := int(given[:10])) < minimum:
        raise refuse(name, f"must be an integer of at least {minimum}")
    return min(value, maximum)


def query_boolean(query: Mapping[str, str], name: str) -> bool | None:
    """Return true or false of the query, or None where it is left out."""
    given = query.get(name, "").lower()
    if not given:
        return None
    if given not in _TRUE | _FALSE:
        raise refuse(name, "must be true or false")
    return given in _TRUE


def query_timestamp(query: Mapping[str, str], name: str) -> datetime | None:
    """Return a moment of the query, or None where it is left out.

    The plus of an offset that came unescaped was read as a blank; it is taken for a plus.
    """
    given = query.get(name, "")
    return times.parse_timestamp(given.replace(" ", "+"), name) if given else None


def query_list(values: Sequence[str]) -> list[str]:
    """Return the names of a parameter that may be repeated and hold commas."""
    return [name for value in values for part in value.split(",") if (name := part.strip())]


def _is_text(value: str, longest: int) -> bool:
    # Neither NUL nor a lone surrogate is printable.
    return len(value) <= longest and value.isprintable()
