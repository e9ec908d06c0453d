"""Tell streams that their server stops (ojs-realtime §5.1): a signal stops it, in any server."""

import asyncio
import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from django_ojs.http.event_messages import GRACE_MS
from django_ojs.operations.events.feed import feed

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

#: Seconds between two looks whether the streams have ended.
_CHECK: Final = 0.05


def watch_signals(loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Let the streams of this process end when a signal stops its server.

    To be called in the main thread, after the server has set its handlers: they are called then,
    with a `loop` once the streams have ended, because a server with a loop cuts its WebSockets off
    at once. Where a signal has no handler, there is no stop that streams could wait for.
    """
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, _Stop):
            signal.signal(number, _Stop(handler, loop))


class _Stop:
    """A handler of a signal that stops the server."""

    def __init__(
        self,
        handler: Callable[[int, FrameType | None], Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._handler = handler
        self._loop = loop
        # A handler may interrupt a thread that holds any lock. This queue can be used in it; the
        # locks of the feed are taken by a thread.
        self._begun: SimpleQueue[None] = SimpleQueue()
        self._is_begun = False
        threading.Thread(target=self._work, name="ojs-server-stop", daemon=True).start()

    def _work(self) -> None:
        self._begun.get()
        feed.stop()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._begun.put(None)
        if self._loop is None or self._is_begun or self._loop.is_closed():
            self._handler(number, frame)
            return
        # A second signal is not to wait.
        self._is_begun = True
        end = self._loop.time() + GRACE_MS / 1000
        self._loop.call_soon_threadsafe(self._pass_on, number, end)

    def _pass_on(self, number: int, end: float) -> None:
        assert self._loop is not None
        if feed.readers and self._loop.time() < end:
            self._loop.call_later(_CHECK, self._pass_on, number, end)
        else:
            self._handler(number, None)
