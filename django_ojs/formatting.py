"""Numbers and times as English texts for people. The admin has translated ones of its own."""

import signal
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone

from django_ojs.spec.times import parse_duration

#: Shown for an unknown or a missing value.
DASH: Final = "\N{EM DASH}"

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def grouped(value: int) -> str:
    """Show a whole number with separators: 12,345,678."""
    return f"{value:,}"


def number_of(number: int, what: str) -> str:
    """Show a number of things, whose plural ends in s: 1 job, 2 jobs."""
    return f"{grouped(number)} {what}" + "s" * (number != 1)


def in_units(value: timedelta | float) -> list[tuple[str, str]]:
    """Return a duration (a timedelta, or seconds) in its two largest units: 3 min and 5 s."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 1:
        return [(f"{seconds * 1000:.0f}", "ms")]
    if seconds < 10:
        return [(f"{seconds:.1f}".removesuffix(".0"), "s")]
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for size, unit in _UNITS:
        whole, left = divmod(left, size)
        if whole or parts:
            parts.append((whole, unit))
        if len(parts) == 2:
            break
    return [(str(whole), unit) for whole, unit in parts if whole]


def duration(value: timedelta | float | None, *, gap: str = " ") -> str:
    """Show a duration in its two largest units, with `gap` before each: 3 min 5 s."""
    if value is None:
        return DASH
    return " ".join(f"{number}{gap}{unit}" for number, unit in in_units(value))


def limits_in_words(policy: Mapping[str, Any]) -> str:
    """Show the limits of a limit key; an empty text if there are none."""
    parts = []
    if policy.get("concurrency") is not None:
        parts.append(f"{grouped(policy['concurrency'])} at the same time")
    for name, spacing in (("rate", ""), ("throttle", ", evenly spaced")):
        if given := policy.get(name):
            period = duration(parse_duration(given["period"], name))
            parts.append(f"{grouped(given['limit'])} in {period}{spacing}")
    if policy.get("max_per_second"):
        parts.append(f"{grouped(policy['max_per_second'])} a second")
    return "; ".join(parts)


def absolute_time(moment: datetime | None) -> str:
    """Show a moment to the second in the current timezone, or an empty text for None."""
    return "" if moment is None else f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def exit_code(code: int) -> str:
    """Show how a process ended, by its exit code, which is negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # Most real-time signals have no name.
        return f"killed by signal {-code}"
