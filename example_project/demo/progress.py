"""A bar on a terminal, plain lines anywhere else; and a line each second, whatever it waits for."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

_WIDTH = 30
#: Seconds between two lines; a bar on a terminal moves more often.
_LINE_EVERY_SECONDS = 1.0


class Output(Protocol):
    """The part that is used of a management command's `stdout`."""

    def write(self, msg: str, *, ending: str | None = None) -> object:
        """Write a line."""

    def flush(self) -> None:
        """Flush the output."""

    def isatty(self) -> bool:
        """Whether the output is a terminal."""


@dataclass(kw_only=True)
class Reporter:
    """An output that also says what the demonstration waits for, once a second without a line."""

    out: Output
    clock: Callable[[], float] = time.monotonic
    _waits_for: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Store the start time."""
        self._began = self._written = self.clock()

    def write(self, msg: str, *, ending: str | None = None) -> None:
        """Write a line."""
        with self._lock:
            self._write(msg, ending)

    def flush(self) -> None:
        """Flush the output."""
        self.out.flush()

    def isatty(self) -> bool:
        """Whether the output is a terminal."""
        return self.out.isatty()

    def wait_for(self, what: str) -> None:
        """Write what the lines name from now on."""
        with self._lock:
            self._waits_for, self._began = what, self.clock()
            self._write(f"{what} ...")

    def tick(self) -> None:
        """Write what the demonstration waits for, if a second has passed since the last line."""
        with self._lock:
            now = self.clock()
            if now - self._written >= _LINE_EVERY_SECONDS:
                self._write(f"{self._waits_for} ... {now - self._began:.0f} s")

    def _write(self, msg: str, ending: str | None = None) -> None:
        self.out.write(msg, ending=ending)
        self.out.flush()
        self._written = self.clock()

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Tick in a thread until the block has ended."""
        over = threading.Event()

        def tick() -> None:
            while not over.wait(_LINE_EVERY_SECONDS / 5):
                self.tick()

        thread = threading.Thread(target=tick, name="demo-reporter", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


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
