"""A progress bar on a terminal, plain lines anywhere else."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_WIDTH = 30
#: Where nobody watches a bar grow, a line this often is enough.
_LINE_EVERY_SECONDS = 5.0


class Output(Protocol):
    """What is needed of a management command's `stdout`."""

    def write(self, msg: str, *, ending: str | None = None) -> object:
        """Write a line."""

    def flush(self) -> None:
        """Send it on its way."""

    def isatty(self) -> bool:
        """Whether a person is watching."""


@dataclass(kw_only=True)
class Progress:
    """One thing that goes from nothing to `total`."""

    out: Output
    title: str
    total: int
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Start the clock."""
        self._started = self._shown = self.clock()

    def show(self, done: int, note: str = "") -> None:
        """Show how far it is; `note` stands behind the numbers."""
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

    def say(self, line: str) -> None:
        """Write a line of its own, above the bar."""
        self.out.write(f"\r\x1b[2K{line}" if self.out.isatty() else line)
        self.out.flush()

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.out.isatty():
            self.out.write("")
