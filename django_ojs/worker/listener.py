"""Listen for NOTIFY of new jobs. The end of its session shows others that the worker died."""

import logging
import selectors
import threading
from collections.abc import Callable, Collection
from typing import Protocol

from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec.scheduling import ALL
from django_ojs.storage import database, notify
from django_ojs.storage.backoff import Backoff
from django_ojs.worker.wakes import WakePipe

logger = logging.getLogger("django_ojs")

#: Seconds of one wait for notifications; between two waits the thread checks whether it must attach
#: its session again.
WAIT = 1.0


class SessionOwner(Protocol):
    """Reports the listener's database session as the worker's own: the heartbeat."""

    #: Whether the session is to be attached again, since the server may be another one.
    wants_session: bool

    def attach_session(self) -> bool:
        """Report the calling thread's session. Return whether it is the worker's own."""

    def detach_session(self) -> None:
        """Report that the session has ended."""


class Listener:
    """A thread that calls `wake` when notifications of its queues have arrived.

    `wake` gets the queues, and when the last notification was sent. Each time that the thread has
    connected, it calls `connected`, and then `wake` with no queues and None. It does nothing where
    the database has no notifications, or behind a pooler.
    """

    def __init__(
        self,
        queues: Collection[str],
        wake: Callable[[Collection[str], float | None], None],
        session: SessionOwner,
        connected: Callable[[], None],
    ) -> None:
        self._queues = frozenset(queues)
        self._wake = wake
        self._session = session
        self._connected = connected
        self._stop = threading.Event()
        self._wake_pipe = WakePipe()
        self._backoff = Backoff()
        self._thread: threading.Thread | None = None
        self.listening = False
        if database.dialect().can_notify:
            self._thread = threading.Thread(target=self._work, name="ojs-listener", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._wake_pipe.wake()
        if self._thread is not None:
            self._thread.join(WAIT * 2)

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    if not self._listen():
                        return
                except (DatabaseError, InterfaceError):
                    logger.debug("The listening connection was lost; connecting again.")
                except Exception:
                    # The connection ended during a wait, and the driver raised an error that is not
                    # Django's.
                    logger.debug("Listening was interrupted; connecting again.", exc_info=True)
                self.listening = False
                self._session.detach_session()
                connections.close_all()
                # If the server was restarted, it has ended other connections too.
                database.recheck(healthy=True)
                self._stop.wait(self._backoff.pause())
        finally:
            connections.close_all()

    def _listen(self) -> bool:
        link = database.connection()
        link.ensure_connection()
        if not self._session.attach_session():
            # Behind a pooler a notification would arrive on a connection of another client. The
            # worker finds its jobs by polling.
            return False
        database.dialect().listen(link, notify.JOBS)
        self.listening = True
        self._backoff.reset()
        self._connected()
        # Jobs that were announced before LISTEN took effect are found by this wake.
        self._wake((), None)
        with selectors.DefaultSelector() as selector:
            selector.register(link.connection, selectors.EVENT_READ)
            selector.register(self._wake_pipe, selectors.EVENT_READ)
            while not self._stop.is_set():
                # The driver's own wait would wake up ten times a second.
                if selector.select(WAIT):
                    self._read(link)
                if self._session.wants_session and not self._session.attach_session():
                    return False
        return True

    def _read(self, link: BaseDatabaseWrapper) -> None:
        notified = dict(database.dialect().notifications(link))
        wanted = notified if ALL in self._queues else self._queues.intersection(notified)
        if wanted:
            self._wake(wanted, max(notified[queue] for queue in wanted))
