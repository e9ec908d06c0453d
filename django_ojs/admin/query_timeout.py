"""Queries of a page that run under a timeout; the page shows a dash for those that exceed it."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from django.db import DatabaseError, connections, transaction

from django_ojs.storage import database

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: Seconds for one query, and for all queries of a page.
QUERY_SECONDS: Final = 1.5
PAGE_SECONDS: Final = 5.0

#: Virtual machine instructions of SQLite between two checks of the clock.
_INSTRUCTIONS: Final = 20_000


class TimedQueries:
    """Runs the queries of a page until the page's time is up."""

    def __init__(self, alias: str, seconds: float) -> None:
        self._alias = alias
        self._seconds = seconds
        self._deadline = time.monotonic() + PAGE_SECONDS
        #: The names of the queries that timed out, for the page.
        self.timed_out: list[str] = []

    def __call__(self, name: str, query: Callable[[], T]) -> T | None:
        """Return the result of a query, or None if it timed out."""
        if time.monotonic() > self._deadline:
            self.timed_out.append(name)
            return None
        try:
            with _timeout(self._alias, self._seconds):
                return query()
        except DatabaseError as error:
            logger.warning("The admin shows no %s (%s).", name, error.__class__.__name__)
            self.timed_out.append(name)
            return None


@contextmanager
def timed_queries(seconds: float = QUERY_SECONDS) -> Iterator[TimedQueries]:
    """Run queries with a timeout of so many seconds each."""
    alias = database.alias()
    if connections[alias].vendor != "postgresql":
        yield TimedQueries(alias, seconds)
        return
    # One transaction: the timeout is set once and ends with it, through a connection pooler too.
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('statement_timeout'), "
            "set_config('statement_timeout', %s, true)",
            [str(int(seconds * 1000))],
        )
        (before, _) = cursor.fetchone()
        yield TimedQueries(alias, seconds)
        # A transaction of the caller keeps its own timeout.
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])


@contextmanager
def _timeout(alias: str, seconds: float) -> Iterator[None]:
    connection = connections[alias]
    if connection.vendor != "sqlite":
        # A savepoint: a statement that was cancelled must not end the page's transaction.
        with transaction.atomic(using=alias):
            yield
        return
    connection.ensure_connection()
    deadline = time.monotonic() + seconds
    raw: Any = connection.connection
    raw.set_progress_handler(lambda: time.monotonic() > deadline, _INSTRUCTIONS)
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)
