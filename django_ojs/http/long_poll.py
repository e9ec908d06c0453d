"""Long polling: requests that wait, limited so that the server keeps threads for others."""

import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final, TypeVar

from django_ojs.conf import settings

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.25


class WaitingRequests:
    """Counts the waiting requests of this process.

    A semaphore would not do: its size is fixed, and `limit` returns a setting that may change.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        # The lock is reentrant, because a finalizer may call `leave` while this thread holds it.
        self._lock = RLock()
        self._limit = limit
        self.count = 0

    def enter(self) -> bool:
        """Count a request if it may wait. Return whether it may."""
        with self._lock:
            if self.count >= self._limit():
                return False
            self.count += 1
            return True

    def leave(self) -> None:
        """Stop counting a request."""
        with self._lock:
            self.count -= 1


#: Each waiting request occupies a thread of the server.
waiting: Final = WaitingRequests(lambda: settings().http_waiting_requests)


def until(
    check: Callable[[], T], seconds: float, *, is_over: Callable[[], bool] = lambda: False
) -> T:
    """Call `check` until its result is true or `seconds` are over; return the last result.

    Between the calls it holds no transaction and no lock, and ends if `is_over()`. When
    HTTP_WAITING_REQUESTS requests of this process wait already, it checks once.
    """
    found = check()
    if found or seconds <= 0:
        return found
    with slot() as may_wait:
        end = time.monotonic() + (seconds if may_wait else 0)
        pause = _FIRST_PAUSE
        while not found and (left := end - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            if is_over():
                break
            found = check()
        return found


def client_is_gone(environ: Mapping[str, Any]) -> bool:
    """Whether the client of a WSGI request, or the proxy before it, has closed the connection.

    It is False unless the server passes its connection on, as Gunicorn does.
    """
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return False
    # It must not read from the connection, which may be encrypted or belong to an event loop.
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


@contextmanager
def slot() -> Iterator[bool]:
    """Count this request as waiting; False when HTTP_WAITING_REQUESTS requests wait already."""
    entered = waiting.enter()
    try:
        yield entered
    finally:
        if entered:
            waiting.leave()
