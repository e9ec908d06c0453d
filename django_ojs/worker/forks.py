"""End a process that a handler has forked, as soon as the handler ends in it.

Such a process is a copy of the worker, with the jobs that the worker has claimed and the socket to
its database. It must not go on as a second worker.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, ParamSpec, TypeVar

from django_ojs.context import JobContext
from django_ojs.handlers import Handler

P = ParamSpec("P")
T = TypeVar("T")


def caller(handler: Handler[..., Any]) -> Callable[[JobContext], Any]:
    """Return the function that calls a handler; for an `async def`, it makes a coroutine.

    A process that the handler forks ends with the handler: it does not return to the middleware,
    end the transaction of an atomic handler, or store an outcome.
    """
    return partial(_await if handler.is_async else _call, handler.run)


class _Forks:
    """Counts the forks between this process and the one that imported this module.

    Asking the system for the process ID at both ends of each run takes longer.
    """

    number = 0

    @classmethod
    def count(cls) -> None:
        cls.number += 1


os.register_at_fork(after_in_child=_Forks.count)


def number() -> int:
    """Return a number that differs in a process and its forks."""
    return _Forks.number


class _EndOfForks:
    """Ends a process that is forked inside the block when the block ends.

    It is a class because each job enters it, and `contextmanager` takes longer.
    """

    def __enter__(self) -> None:
        self._before = _Forks.number

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if _Forks.number != self._before:
            end(error)


def _call(function: Callable[..., T], *args: Any) -> T:
    with _EndOfForks():
        return function(*args)


async def _await(run: Callable[[JobContext], Any], context: JobContext) -> Any:
    with _EndOfForks():
        return await run(context)


class SyncThread(ThreadPoolExecutor):
    """The thread for the synchronous parts of coroutines, such as Django's async ORM.

    A process that one of these parts forks ends with the part. Otherwise it would wait for the next
    part forever.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="ojs-sync")
        #: Whether the thread was started.
        self.is_used = False
        #: Whether something ran on it since its connections were refreshed.
        self.is_dirty = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        self.is_used = self.is_dirty = True
        return super().submit(_call, partial(fn, *args, **kwargs))


def end(error: BaseException | None) -> NoReturn:
    """End this process, a fork of the worker, as Python does after this error."""
    code = 1
    try:
        code = _exit_code(error)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
    finally:
        try:
            # `sys.exit` is not used, because the worker runs the exit handlers and closes the
            # connections.
            os._exit(code)
        finally:
            # Tools that measure coverage replace `os._exit` by a function that may fail in a fork.
            os.kill(os.getpid(), signal.SIGKILL)


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        with suppress(Exception):
            traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    with suppress(Exception):
        print(error.code, file=sys.stderr)
    return 1
