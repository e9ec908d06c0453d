"""A progress bar on a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_WIDTH = 30
#: Seconds between two lines where the output is not a terminal.
_LINE_EVERY_SECONDS = 5.0


class Output(Protocol):
    """The part that is used of a management command's `stdout`."""

    def write(self, msg: str, *, ending: str | None = None) -> object:
        """Write a line."""

    def flush(self) -> None:
        """Flush the output."""

    def isatty(self) -> bool:
        """Whether the output is a terminal."""


@dataclass(kw_only=True)
class Progress:
    """The progress of one step, from 0 to `total`."""

    out: Output
    title: str
    total: int
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Store the start time."""
        self._started = self._shown = self.clock()

    def show(self, done: int, note: str = "") -> None:
        """Show the number done, followed by `note`."""
        now = self.clock()
        if not self.out.isatty() and now - self._shown < _LINE_EVERY_SECONDS and done < self.total:
            return
        self._shown = now
        rate = done / max(now - self._started, 0.001)
        text = f"{done:,}/{self.total:,}  {rate:,.0f}/s{'  ' if note else ''}{note}"
        if self.out.isatty():
            filled = _WIDTH * done // max(self.total, 1)
            bar = "█" * filled + "░" * (_WIDTH - filled)
            self.out.write(f"\r\x1b[2K{self.title}  {bar}  {text}", ending="")
        else:
            self.out.write(f"{self.title}  {text}")
        self.out.flush()

    def write_line(self, line: str) -> None:
        """Write a separate line, above the bar."""
        self.out.write(f"\r\x1b[2K{line}" if self.out.isatty() else line)
        self.out.flush()

    def close(self) -> None:
        """End the line of the bar."""
        if self.out.isatty():
            self.out.write("")
