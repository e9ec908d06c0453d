"""The events of a limit key (rate-limiting §11.1)."""

from typing import Any

from django_ojs.spec.published import EventType, NewEvent


def of_limit_key(type: EventType, key: str, **data: Any) -> NewEvent:
    """Return an event of a limit key. A value of None in `data` is left out."""
    # The jobs of a key may be in any queue, so its events belong to none.
    given = {name: value for name, value in data.items() if value is not None}
    return NewEvent(type=type, subject=key, data={"key": key, **given})
