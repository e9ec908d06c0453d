"""The feed of events: one thread of the process waits for new events on behalf of all streams."""

import logging
import selectors
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from django.db import DatabaseError, InterfaceError, connections

from django_ojs.extensions.events.operations import log
from django_ojs.storage import database, notify
from django_ojs.storage.backoff import Backoff

T = TypeVar("T")

logger = logging.getLogger("django_ojs")

#: Seconds between two queries for new events where no notification arrives.
WITHOUT_NOTIFICATION: Final = 1.0
#: The same on a connection that gets no notifications.
POLL: Final = 0.25
#: Seconds between two queries while events arrive. Notifications in quick succession are merged
#: into one, so the query after the last one finds the rest.
BURST: Final = 0.05


class Feed:
    """Wakes the readers of the process when events arrive, and reads the database for them.

    While there are readers, it has two threads, each with one connection, however many readers
    there are: a stream that waits needs no connection.
    """

    def __init__(self) -> None:
        # The lock is reentrant, because the finalizer of a stream calls `leave`, and runs in any
        # thread at any time.
        self._lock = threading.RLock()
        self._readers = 0
        self._waiting: set[Future[None]] = set()
        self._paused: set[Future[None]] = set()
        #: Whether the server is stopping. Readers then tell their clients, and end.
        self.is_stopping = False
        self._latest = 0
        self._watch: _Watch | None = None
        self._pool: ThreadPoolExecutor | None = None

    def enter(self) -> None:
        """Count a reader."""
        with self._lock:
            self._readers += 1
            if self._pool is None:
                self._watch = _Watch(self._arrived)
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="ojs-event-reader")

    def leave(self) -> None:
        """Stop counting a reader. The last one ends the threads."""
        with self._lock:
            self._readers -= 1
            if self._readers:
                return
            watch, pool = self._watch, self._pool
            self._watch = self._pool = None
        if watch is not None:
            watch.close()
        if pool is not None:
            pool.submit(connections.close_all)
            pool.shutdown(wait=False)

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Call a function that reads the database, in the thread for reading."""
        with self._lock:
            if self._pool is None:
                raise RuntimeError("only a reader that has entered may read")
            return self._pool.submit(_reading, function)

    def changed(self, position: int) -> "Future[None]":
        """Return a future that is done once there are events after a position."""
        future: Future[None] = Future()
        with self._lock:
            if self._latest <= position and not self.is_stopping:
                self._waiting.add(future)
                future.add_done_callback(self._forget)
                return future
        future.set_result(None)
        return future

    def stopping(self) -> "Future[None]":
        """Return a future that is done once the server stops."""
        future: Future[None] = Future()
        with self._lock:
            if not self.is_stopping:
                self._paused.add(future)
                future.add_done_callback(self._forget)
                return future
        future.set_result(None)
        return future

    def stop(self) -> None:
        """Let all readers end, because the server stops.

        A signal handler must not call this, because it interrupts a thread that may hold the lock.
        """
        with self._lock:
            self.is_stopping = True
            waiting = self._paused | self._waiting
            self._waiting, self._paused = set(), set()
        _wake(waiting)

    def _forget(self, future: "Future[None]") -> None:
        # Called without the lock: by the thread that cancels the future, or by `_arrived`.
        with self._lock:
            self._waiting.discard(future)
            self._paused.discard(future)

    def _arrived(self, latest: int) -> None:
        with self._lock:
            self._latest = latest
            waiting, self._waiting = self._waiting, set()
        _wake(waiting)


def _wake(waiting: Iterable["Future[None]"]) -> None:
    for future in waiting:
        # This is False for a future that its reader has cancelled, because the reader no longer
        # waits.
        if future.set_running_or_notify_cancel():
            future.set_result(None)


def _reading(function: Callable[[], T]) -> T:
    try:
        return function()
    except (DatabaseError, InterfaceError):
        # The next call connects again.
        connections.close_all()
        raise


class _Watch:
    """A thread that calls `arrived` with the latest position whenever it changes."""

    def __init__(self, arrived: Callable[[int], None]) -> None:
        self._arrived = arrived
        self._stop = threading.Event()
        self._backoff = Backoff()
        threading.Thread(target=self._work, name="ojs-event-feed", daemon=True).start()

    def close(self) -> None:
        """End the thread soon."""
        self._stop.set()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._follow()
                except Exception:
                    # The driver has error classes of its own for a connection that ended during a
                    # wait.
                    logger.debug("The feed of events was interrupted.", exc_info=True)
                    connections.close_all()
                    self._stop.wait(self._backoff.pause())
        finally:
            connections.close_all()

    def _follow(self) -> None:
        known = -1
        with selectors.DefaultSelector() as selector:
            is_notified = _listen(selector)
            while not self._stop.is_set():
                latest = log.latest()
                self._backoff.reset()
                if latest != known:
                    known = latest
                    self._arrived(latest)
                    self._stop.wait(BURST)
                elif is_notified:
                    self._wait_for_notification(selector)
                else:
                    self._stop.wait(POLL)

    def _wait_for_notification(self, selector: selectors.BaseSelector) -> None:
        end = time.monotonic() + WITHOUT_NOTIFICATION
        # The waits are short, so that the thread ends soon after the last reader has left.
        while not self._stop.is_set() and time.monotonic() < end:
            if selector.select(POLL):
                database.dialect().notifications(database.connection())
                return


def _listen(selector: selectors.BaseSelector) -> bool:
    """Listen for notifications of events, and return whether they arrive on this connection."""
    link, dialect = database.connection(), database.dialect()
    if not dialect.can_notify:
        return False
    link.ensure_connection()
    if dialect.session(link) is None:
        # Behind a pooler, notifications arrive on a connection of another client.
        return False
    dialect.listen(link, notify.EVENTS)
    selector.register(link.connection, selectors.EVENT_READ)
    return True


feed: Final = Feed()
