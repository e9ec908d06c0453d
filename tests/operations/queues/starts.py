"""What a process has learned of the next start of a limited queue."""

from __future__ import annotations


def may_start_soon(seconds: float | None) -> bool:
    """Whether the process tries again soon: 0 is right too, on a machine that stood still."""
    return seconds is not None and seconds < 1
