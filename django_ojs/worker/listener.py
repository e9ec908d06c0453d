"""Listen for new work, on a connection that also says the process is alive.

When it ends, so did the process.
"""

import logging
import selectors
import threading
from collections.abc import Callable, Collection

from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.conf import settings
from django_ojs.storage import database

logger = logging.getLogger("django_ojs")

#: How long one wait for notifications lasts before the thread looks whether it shall stop.
WAIT = 0.25
PAUSE = 0.2


class Listener:
    """A thread that waits for notifications.

    It does nothing where the database has none, or behind a pooler.
    """

    def __init__(
        self, queues: Collection[str], woken: Callable[[], None], attach: Callable[[], bool]
    ) -> None:
        self._queues = frozenset(queues)
        self._woken = woken
        self._attach = attach
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.listening = False
        if database.dialect().can_notify:
            self._thread = threading.Thread(target=self._work, name="ojs-listener", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._stop.set()
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
                    # A driver's own error (the connection ended while waiting): no Django class.
                    logger.debug("Listening was interrupted; connecting again.", exc_info=True)
                self.listening = False
                connections.close_all()
                self._stop.wait(PAUSE)
        finally:
            connections.close_all()

    def _listen(self) -> bool:
        link = database.connection()
        link.ensure_connection()
        if not self._attach():
            # Behind a pooler: a notification would arrive on somebody else's connection. Polling
            # does it.
            return False
        if settings().notify:
            database.dialect().listen(link)
        self.listening = True
        # What was announced before it listened is found by a look.
        self._woken()
        with selectors.DefaultSelector() as selector:
            selector.register(link.connection, selectors.EVENT_READ)
            while not self._stop.is_set():
                # The driver's own wait wakes ten times a second; the system's sleeps.
                if selector.select(WAIT):
                    self._read(link)
        return True

    def _read(self, link: BaseDatabaseWrapper) -> None:
        if self._queues.intersection(database.dialect().notified_queues(link)):
            self._woken()


__all__ = ["Listener"]
