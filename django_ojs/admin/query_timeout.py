"""Queries of a page that run under a timeout; the page shows a dash for those without a result."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from django.db import DatabaseError, OperationalError
from django.utils.translation import gettext, gettext_noop

from django_ojs.storage import database
from django_ojs.storage.dialects.server import QueryLimit

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: The names of the reports' queries, listed here for translation; the reports do not mark them.
NAMES: Final = (
    gettext_noop("queues"),
    gettext_noop("oldest jobs"),
    gettext_noop("failures"),
    gettext_noop("open transactions"),
    gettext_noop("API keys"),
    gettext_noop("maintenance mode"),
    gettext_noop("workers"),
    gettext_noop("throughput"),
    gettext_noop("pressure"),
)

#: Seconds for one query, and for all queries of a page.
QUERY_SECONDS: Final = 1.5
PAGE_SECONDS: Final = 5.0


@dataclass(slots=True)
class Unread:
    """The names of the queries of a page that have no result; the page says why."""

    timed_out: list[str] = field(default_factory=list)
    #: The names of queries that the database rejected or could not receive.
    failed: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.timed_out or self.failed)

    def add(self, other: "Unread") -> None:
        self.timed_out += other.timed_out
        self.failed += other.failed


class TimedQueries:
    """Runs the queries of a page until the page's time is up."""

    def __init__(self, limit: QueryLimit) -> None:
        self._limit = limit
        self._deadline = time.monotonic() + PAGE_SECONDS
        self.unread = Unread()

    def __call__(self, name: str, query: Callable[[], T]) -> T | None:
        """Return the result of a query, or None if it timed out or failed.

        `name` is marked by `gettext_noop`: the log has it in English, and the page translates it.
        """
        if time.monotonic() > self._deadline:
            self.unread.timed_out.append(gettext(name))
            return None
        try:
            with self._limit():
                return query()
        except DatabaseError as error:
            timed_out = database.dialect().is_timeout_error(error)
            logger.warning("The admin shows no %s (%s).", name, error.__class__.__name__)
            # A query that gave up waiting for a lock counts as timed out.
            waited = isinstance(error, OperationalError) and (
                database.dialect().is_contention_error(error)
            )
            unread = self.unread.timed_out if timed_out or waited else self.unread.failed
            unread.append(gettext(name))
            return None


def timed(unread: Unread, name: str, query: Callable[[], T]) -> T | None:
    """Return the result of one query, or None with its name added to `unread`."""
    with timed_queries() as run:
        found = run(name, query)
    unread.add(run.unread)
    return found


@contextmanager
def timed_queries(seconds: float = QUERY_SECONDS) -> Iterator[TimedQueries]:
    """Run queries with a timeout, in seconds, for each of them."""
    with database.dialect().query_timeout(database.connection(), seconds) as limit:
        yield TimedQueries(limit)
