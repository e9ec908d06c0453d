"""Arguments and results that JSON has no type for, in the form of Celery's serializer.

Jobs that were exported from a broker of Celery are read in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from django.utils.functional import Promise

#: A value is compared in this order, because a datetime is a date too.
_TYPES: Final[dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, lambda value: {"hex": value.hex}, lambda value: UUID(value["hex"])),
}
_MEMBERS: Final = {"__type__", "__value__"}


def encode(value: Any) -> Any:
    """Return a value in a form that JSON can carry. PUSH rejects what has no such form."""
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, Promise):
        return str(value)
    for name, (kind, write, _) in _TYPES.items():
        if isinstance(value, kind):
            return {"__type__": name, "__value__": write(value)}
    return value


def decode(value: Any) -> Any:
    """Return what `encode` was given."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _MEMBERS and value["__type__"] in _TYPES:
        return _TYPES[value["__type__"]][2](value["__value__"])
    return {key: decode(item) for key, item in value.items()}
