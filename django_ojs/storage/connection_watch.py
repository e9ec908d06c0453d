"""End waits on connections that are established but get no replies.

The kernel of a frozen server goes on acknowledging, and so does a proxy whose server is gone: no
timeout of TCP ends the connection, and a thread that waits in the driver would wait for ever.
"""

import logging
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.storage import database

logger = logging.getLogger("django_ojs")

#: How many checks are made within the timeout of a watch. A connection that is busy with one short
#: statement after another is seldom seen waiting at all of them.
LOOKS = 30

#: While no connection waits, the next check comes after this many pauses: otherwise the checks
#: would be a tenth of what an idle process costs.
IDLE_PAUSES = 4

#: Seconds within which the server must say, over another connection, what it executes. Trying
#: several hosts that accept a connection and do not respond takes as long.
ANSWER_TIMEOUT = 10.0


class ConnectionWatch:
    """Ends the connections of this process that get no reply for `timeout` seconds.

    The server is asked, over another connection, which statements it executes. These may go on,
    such as a commit that waits for a replica. If the server does not respond, statements may go on
    as well, except a heartbeat, sent in a `with` block of this object: if it is overdue, all
    connections are ended.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._pause = timeout / LOOKS
        #: When the heartbeat under way began, and its connection.
        self._beat: tuple[float, BaseDatabaseWrapper] | None = None
        # Driver connections that were seen waiting at each check, and since when.
        self._waiting: dict[Any, float] = {}
        self._answered_at = 0.0
        self._stop = threading.Event()

    def start(self) -> None:
        """Start the thread that checks the connections, if the dialect `is_server`."""
        if database.dialect().is_server:
            threading.Thread(target=self._work, name="ojs-watch", daemon=True).start()

    def __enter__(self) -> None:
        self._beat = time.monotonic(), database.connection()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._beat = None

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.wait(self._pause * self._pauses()):
            try:
                self.look()
            except Exception:
                logger.exception("The connections could not be checked; it will be tried again.")

    def _pauses(self) -> int:
        return 1 if self._waiting or self._beat else IDLE_PAUSES

    def look(self) -> None:
        """End the connections that have been seen waiting at each check for too long."""
        now = time.monotonic()
        dialect = database.dialect()
        links = {link.connection: link for link in database.watched()}
        self._waiting = {
            driver: self._waiting.get(driver, now)
            for driver, link in links.items()
            if dialect.is_waiting(link)
        }
        overdue = {
            driver for driver, since in self._waiting.items() if now - since >= self._timeout
        }
        began, own = self._beat or (now, None)
        is_overdue = now - max(began, self._answered_at) >= self._timeout
        is_beat_overdue = own is not None and is_overdue
        if own is not None and is_overdue and dialect.is_waiting(own) is None:
            overdue.add(own.connection)
        if not (overdue or is_beat_overdue):
            return
        numbers = {driver: dialect.session_number(link) for driver, link in links.items()}
        executes = self._ask(list(numbers.values()))
        if executes is None:
            silent = set(links) if is_beat_overdue else set()
        else:
            self._answered_at = time.monotonic()
            busy = {driver for driver in links if executes.get(numbers[driver])}
            gone = {driver for driver in links if numbers[driver] not in executes}
            silent = gone | (overdue - busy)
            if own is not None and own.connection in silent:
                silent = set(links) - busy
        ended = [driver for driver in silent if _end(links.get(driver), driver)]
        if ended:
            logger.warning(
                "The database has not replied for %.0f s: %d connections of this process are "
                "ended, and made anew.",
                time.monotonic() - min([began, *self._waiting.values()]),
                len(ended),
            )
        # Statements that the server executes may go on, and are asked about again after the same
        # time.
        self._waiting.update(dict.fromkeys(overdue & set(self._waiting), time.monotonic()))

    def _ask(self, numbers: list[int]) -> Mapping[int, bool] | None:
        """Return which of these sessions the server has, and whether it executes a statement.

        Return None if it does not respond, or if a pooler has the sessions.
        """
        answers: list[Mapping[int, bool] | None] = []
        used: list[BaseDatabaseWrapper] = []

        def ask() -> None:
            try:
                used.append(database.connection())
                answers.append(database.dialect().executes(used[0], numbers))
            except Error:
                pass
            finally:
                connections.close_all()

        thread = threading.Thread(target=ask, name="ojs-watch-asks", daemon=True)
        thread.start()
        thread.join(ANSWER_TIMEOUT)
        while thread.is_alive() and not self._stop.is_set():
            # The thread has connected, but its statement gets no reply either.
            for link in used:
                database.end(link)
            thread.join(self._pause)
        return answers[0] if answers else None


def _end(link: BaseDatabaseWrapper | None, driver: object) -> bool:
    return link is not None and link.connection is driver and database.end(link)
