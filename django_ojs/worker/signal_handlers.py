"""Signal handlers of a command, which hold only while it runs, and not in processes it forks."""

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, Final

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def signal_handlers(handlers: Mapping[signal.Signals, Handler]) -> Iterator[None]:
    """Install signal handlers, and restore the previous ones at the end.

    A command may be called by a program that continues after it, such as a test run.
    """
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            # None means that the handler was not installed by Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class _Forks:
    """Gives these signals their default actions in each process that is forked from this one.

    They are blocked during the fork: Python forgets one that arrives before the child is ready.
    """

    def __init__(self) -> None:
        self.signals: Collection[signal.Signals] = ()
        self._of_thread = threading.local()

    def before(self) -> None:
        if self.signals:
            self._of_thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self.signals)

    def after(self) -> None:
        mask = self._of_thread.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def in_child(self) -> None:
        for number in self.signals:
            # SIGINT gets its default action as well, because Python ignores a KeyboardInterrupt
            # that is raised in this function.
            signal.signal(number, signal.SIG_DFL)
        self.signals = ()
        self.after()


_forks: Final = _Forks()


@cache
def _follow_forks() -> None:
    os.register_at_fork(
        before=_forks.before, after_in_parent=_forks.after, after_in_child=_forks.in_child
    )


@contextmanager
def default_in_forks(signals: Collection[signal.Signals]) -> Iterator[None]:
    """Let a process that is forked in the block, as `multiprocessing` does, end by these signals.

    With the handlers of this process, the fork would only note the signals, and not end.
    """
    _follow_forks()
    _forks.signals = signals
    try:
        yield
    finally:
        _forks.signals = ()
