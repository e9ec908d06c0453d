"""Signal handlers of a command, which hold only while it runs."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def signal_handlers(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Install signal handlers, and restore the previous ones at the end.

    A command may be called by a program that goes on, such as a test run.
    """
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            # None: the handler was not installed by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
