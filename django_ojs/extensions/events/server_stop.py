"""Tell streams that their server stops (ojs-realtime §5.1). Signals stop every kind of server."""

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from django_ojs.extensions.events.operations.feed import feed

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def watch_signals() -> None:
    """Let the streams of this process end when a signal stops its server.

    Call it in the main thread, after the server has set its handlers, which are then called as
    well. Any other signal ends the process at once or is ignored: streams have nothing to do.
    """
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, _Stop):
            signal.signal(number, _Stop(handler))


class _Stop:
    """A handler of a signal that stops the server."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler = handler
        # A handler may interrupt a thread that holds any lock, so it only uses this queue, which is
        # reentrant. Another thread takes the locks of the feed.
        self._begun: SimpleQueue[None] = SimpleQueue()
        threading.Thread(target=self._work, name="ojs-server-stop", daemon=True).start()

    def _work(self) -> None:
        self._begun.get()
        feed.stop()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._begun.put(None)
        self._handler(number, frame)
