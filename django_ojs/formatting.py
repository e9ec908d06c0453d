"""Numbers and times in few characters."""

import signal
from datetime import timedelta
from typing import Final

#: Shown for an unknown value and for none.
DASH: Final = "\N{EM DASH}"

THIN: Final = "\N{NARROW NO-BREAK SPACE}"

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def number(value: float | None) -> str:
    """Show a number with thin separators: 12 345 678; a fraction with one digit below 10."""
    if value is None:
        return DASH
    whole = round(value)
    if isinstance(value, float) and abs(value) < 10 and abs(value - whole) >= 0.05:
        return f"{value:.1f}"
    return f"{whole:,}".replace(",", THIN)


def short(value: float | None) -> str:
    """Show a number in about four characters: 12.3k."""
    if value is None:
        return DASH
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit * (10 if sign == "k" else 1):
            return f"{value / unit:.1f}".removesuffix(".0") + sign
    return number(value)


def duration(value: timedelta | float | None) -> str:
    """Show a duration (a timedelta, or seconds) in its two largest units: 3 min 5 s."""
    if value is None:
        return DASH
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if seconds < 1:
        return f"{seconds * 1000:.0f}{THIN}ms"
    if seconds < 10:
        return f"{seconds:.1f}{THIN}s".replace(f".0{THIN}", THIN)
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        whole, left = divmod(left, size)
        if whole or parts:
            parts.append(f"{whole}{THIN}{unit}" if whole else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def exit_code(code: int) -> str:
    """Show how a process ended, by its exit code, which is negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # Most real-time signals have no name.
        return f"killed by signal {-code}"
