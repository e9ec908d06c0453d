"""Tell idle workers of new work. A hint: whoever misses it polls."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from django.db import Error, connections

from django_ojs.conf import settings
from django_ojs.storage import database, dialects

logger = logging.getLogger("django_ojs")

#: A process announces a queue at most this often. A notification costs about a tenth of an enqueue,
#: so a hundred a second cost a busy producer a few per cent; a worker that was woken looks again
#: after this time for what was not announced.
INTERVAL = 0.01

_lock = threading.Lock()
_announced: dict[tuple[str, str], float] = {}


def announce(queues: Iterable[str]) -> None:
    """Wake the workers of these queues once the current transaction has committed.

    Never inside it: a transaction that holds a notification takes a lock at its commit that all
    others wait for.
    """
    database.after_commit(announcement(queues))


def announcement(queues: Iterable[str]) -> Callable[[], None]:
    """Return what wakes the workers of these queues; it is to be called after the commit."""
    return partial(_send, database.alias(), tuple(dict.fromkeys(queues)))


def _send(alias: str, queues: tuple[str, ...]) -> None:
    if not settings().notify:
        return
    now = time.monotonic()
    with _lock:
        # The clock may have begun a moment ago.
        due = [q for q in queues if now - _announced.get((alias, q), -INTERVAL) >= INTERVAL]
        for queue in due:
            _announced[alias, queue] = now
    if not due:
        return
    connection = connections[alias]
    dialect = dialects.of(connection)
    if not dialect.can_notify:
        return
    try:
        dialect.notify(connection, due)
    except Error as error:
        # The jobs are committed; a poll finds them.
        logger.debug("Workers were not notified of new jobs: %s", type(error).__name__)
