"""Notify idle workers of new jobs. A worker that misses it finds the jobs by polling."""

import logging
import math
import threading
import time
from collections.abc import Iterable

from django.db import Error, connections

from django_ojs.conf import settings
from django_ojs.storage import database, process_state

logger = logging.getLogger("django_ojs")

#: Seconds between two notifications of a queue by one process. A notification costs about a tenth
#: of an enqueue, so a hundred a second cost a busy producer a few per cent; a worker that was woken
#: fetches again after this time, for jobs without a notification.
INTERVAL = 0.01


class Throttle:
    """Limits notifications to one per queue and interval."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, str], float] = {}

    def due(self, alias: str, queues: Iterable[str]) -> list[str]:
        """Return those of these queues that may be notified now, and count them as notified."""
        now = time.monotonic()
        with self._lock:
            due = [
                queue
                for queue in queues
                if now - self._sent.get((alias, queue), -math.inf) >= INTERVAL
            ]
            for queue in due:
                self._sent[alias, queue] = now
        return due

    def reset(self) -> None:
        """Allow a notification of every queue."""
        with self._lock:
            self._sent.clear()


throttle = process_state.register(Throttle())


def workers_of(queues: Iterable[str]) -> None:
    """Notify the workers of these queues once the current transaction has committed.

    Never inside it: a transaction that holds a notification takes a lock at its commit that all
    others wait for.
    """
    alias, distinct = database.alias(), tuple(dict.fromkeys(queues))
    database.after_commit(lambda: send(alias, distinct), using=alias)


def send(alias: str, queues: Iterable[str]) -> None:
    """Notify the workers of these queues now, each queue once; after the commit only."""
    if not settings().notify:
        return
    due = throttle.due(alias, queues)
    if not due:
        return
    connection = connections[alias]
    dialect = database.dialect_of(connection)
    if not dialect.can_notify:
        return
    try:
        dialect.notify(connection, due)
    except Error as error:
        # The jobs are committed; a poll finds them.
        logger.debug("Workers were not notified of new jobs: %s", type(error).__name__)
