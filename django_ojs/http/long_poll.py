"""A request that waits for something, and never so many that the server has no hand free."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, TypeVar

from django_ojs.conf import settings

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.25


class _Room:
    """Counts who waits in this process. No semaphore: its size would not follow the setting."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting = 0

    def enter(self) -> bool:
        with self._lock:
            if self._waiting >= settings().http_waiting_requests:
                return False
            self._waiting += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._waiting -= 1


_room: Final = _Room()


def until(look: Callable[[], T], seconds: float) -> T:
    """Look until there is something, or `seconds` are over; return what the last look found.

    Between looks nothing is held, no transaction and no lock. When HTTP_WAITING_REQUESTS requests
    of this process wait already, it looks once.
    """
    found = look()
    if found or seconds <= 0:
        return found
    with place() as there_is_one:
        end = time.monotonic() + (seconds if there_is_one else 0)
        pause = _FIRST_PAUSE
        while not found and (left := end - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            found = look()
        return found


@contextmanager
def place() -> Iterator[bool]:
    """Take one of the places for requests that wait; False when HTTP_WAITING_REQUESTS wait."""
    entered = _room.enter()
    try:
        yield entered
    finally:
        if entered:
            _room.leave()
