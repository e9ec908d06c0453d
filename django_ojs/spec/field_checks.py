"""Checks of the fields of a configuration. Each raises InvalidRequest, which names the field."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeAlias

from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.times import parse_duration

#: A function that gets a value and the path of its field.
Check: TypeAlias = Callable[[object, str], None]


def count(value: object, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidRequest.of(path, "must be an integer of at least 0, which means unbounded")


def share(value: object, path: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidRequest.of(path, "must be a number from 0.0 to 1.0")


def duration(value: object, path: str) -> None:
    try:
        found = parse_duration(value, path) if isinstance(value, str) else timedelta(0)
    except InvalidRequest as error:
        raise error.with_details(field=path) from None
    if found <= timedelta(0):
        raise InvalidRequest.of(
            path, 'must be an ISO 8601 duration longer than zero, such as "P7D"'
        )


def boolean(value: object, path: str) -> None:
    if not isinstance(value, bool):
        raise InvalidRequest.of(path, "must be true or false")


def names(value: object, path: str) -> None:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise InvalidRequest.of(path, "must be an array of non-empty strings")


class Object:
    """The check of an object and its known members."""

    def __init__(self, **members: Check) -> None:
        self.members = members

    def members_of(self, value: Mapping[str, object]) -> Mapping[str, Check]:
        """Return the checks of the known members of an object, by their names."""
        return self.members

    def __call__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise InvalidRequest.of(path, "must be an object")
        for name, check_member in self.members.items():
            if value.get(name) is not None:
                check_member(value[name], f"{path}.{name}")


def check_text(value: object, field: str, *, longest: int = 255) -> str:
    """Return a text that is compared or stored.

    Raises InvalidRequest unless it is 1 to `longest` printable characters.

    NUL and lone surrogates are not printable; no database could store or compare them.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= longest or not value.isprintable():
        raise InvalidRequest.of(field, f"must be a string of 1 to {longest} printable characters.")
    return value
