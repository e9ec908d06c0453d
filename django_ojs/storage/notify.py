"""Notify idle workers of new jobs, and streams of new events. They poll as well."""

import logging
import math
import threading
import time
from collections.abc import Iterable
from typing import Final

from django.db import Error

from django_ojs.storage import database, in_memory_state

logger = logging.getLogger("django_ojs")

#: The channel of workers; a payload is the name of a queue.
JOBS: Final = "ojs"
#: The channel of event streams; the payload is empty.
EVENTS: Final = "ojs_events"

#: Seconds between two notifications of a queue by one process. A notification costs about a tenth
#: of an enqueue, so a hundred a second cost a busy producer a few per cent; a worker that was woken
#: fetches again after this time, for jobs without a notification.
INTERVAL = 0.01

#: How many names are remembered before those that may be notified again are forgotten.
_MOST_REMEMBERED: Final = 10_000


class Throttle:
    """Limits notifications to one per channel, payload and interval."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, str], float] = {}

    def due(self, channel: str, payloads: Iterable[str]) -> list[str]:
        """Return the payloads among these that may be sent now, and count them as sent."""
        now = time.monotonic()
        with self._lock:
            due = [
                payload
                for payload in payloads
                if now - self._sent.get((channel, payload), -math.inf) >= INTERVAL
            ]
            if len(self._sent) > _MOST_REMEMBERED:
                self._sent = {key: at for key, at in self._sent.items() if now - at < INTERVAL}
            for payload in due:
                self._sent[channel, payload] = now
        return due

    def reset(self) -> None:
        """Allow every notification."""
        with self._lock:
            self._sent.clear()


throttle = in_memory_state.register(Throttle())


def workers_of(queues: Iterable[str]) -> None:
    """Notify the workers of these queues once the current transaction has committed.

    This is never done inside it, because a transaction that holds a notification takes a lock at
    its commit that all others wait for.
    """
    distinct = tuple(dict.fromkeys(queues))
    database.after_commit(lambda: send(distinct))


def readers_of_events() -> None:
    """Notify the streams of events once the current transaction has committed."""
    database.after_commit(lambda: send([""], EVENTS))


def send(payloads: Iterable[str], channel: str = JOBS) -> None:
    """Notify the listeners of a channel now, once for each payload. Call it after the commit."""
    due = throttle.due(channel, payloads)
    if not due:
        return
    connection = database.connection()
    dialect = database.dialect_of(connection)
    if not dialect.can_notify:
        return
    try:
        dialect.notify(connection, due, channel)
    except Error as error:
        # The rows are committed; a poll finds them.
        logger.debug("Nothing was notified on %s: %s", channel, type(error).__name__)
