"""Translate the options of `apply_async` to options of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django_ojs.contrib.celery.exceptions import NoEquivalent
from django_ojs.spec.suggestions import allowed_name

#: Options that say how a message reaches a broker, or what a result backend keeps.
_WITHOUT_EFFECT: Final = frozenset(
    {
        *("retry", "retry_policy", "producer", "connection", "add_to_parent", "shadow"),
        *("compression", "ignore_result", "argsrepr", "kwargsrepr", "delivery_mode", "mandatory"),
    }
)
_INSTEAD: Final = {
    "link_error": "Connect to django_ojs.signals.job_discarded, which is sent after the commit.",
    "routing_key": "Name the queue: queue=...",
    "exchange": "Name the queue: queue=...",
    "max_retries": "Declare it: @shared_task(max_retries=...).",
}

_RATE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(?:/([smh]))?").fullmatch
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def read(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `apply_async` as options of a job. Raises NoEquivalent."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if value is None or name in _WITHOUT_EFFECT:
            continue
        if name == "countdown":
            found["scheduled_at"] = timedelta(seconds=max(0, value))
        elif name == "eta":
            found["scheduled_at"] = value
        elif name == "expires":
            found["expires_at"] = (
                timedelta(seconds=value) if isinstance(value, int | float) else value
            )
        elif name == "queue":
            found["queue"] = allowed_name(value)
        elif name == "priority":
            found["priority"] = value
        elif name == "time_limit":
            found["timeout"] = value
        elif name == "soft_time_limit":
            found.setdefault("timeout", options.get("time_limit") or value)
        elif name == "task_id":
            found["id"] = value
        elif name == "serializer":
            check_serializer(value)
        else:
            raise rejection(name)
    return found


def read_rate(value: object) -> tuple[int, timedelta]:
    """Return a `rate_limit`, such as "10/m", as a number of starts and their period.

    Raises NoEquivalent.
    """
    found = _RATE(str(value))
    if found is None or not (number := float(found[1])):
        raise NoEquivalent(f"rate_limit={value!r} is not a rate: write '10/m', '100/h' or '5/s'.")
    period = timedelta(seconds=_SECONDS[found[2] or "s"])
    return (int(number), period) if number.is_integer() else (1, period / number)


def rejection(name: str) -> NoEquivalent:
    """Return the error for an option that a job does not have."""
    return NoEquivalent(
        f"{name} is an option of apply_async that django_ojs does not know. "
        f"{_INSTEAD.get(name, '')}".rstrip()
    )


def check_serializer(name: str) -> None:
    """Raise NoEquivalent unless the serializer is JSON."""
    if name != "json":
        raise NoEquivalent(
            f"The serializer {name!r}: the arguments of a job are JSON. Pass a primary key or "
            "other plain values."
        )
