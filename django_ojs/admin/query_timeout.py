"""Queries of a page that run under a timeout; the page shows a dash for those that exceed it."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from django.db import DatabaseError
from django.utils.translation import gettext

from django_ojs.storage import database, find_database
from django_ojs.storage.dialects.server import QueryLimit

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: Seconds for one query, and for all queries of a page.
QUERY_SECONDS: Final = 1.5
PAGE_SECONDS: Final = 5.0


class TimedQueries:
    """Runs the queries of a page until the page's time is up."""

    def __init__(self, limit: QueryLimit, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._deadline = time.monotonic() + PAGE_SECONDS
        #: The names of the queries that timed out, for the page.
        self.timed_out: list[str] = []

    def __call__(self, name: str, query: Callable[[], T]) -> T | None:
        """Return the result of a query, or None if it timed out.

        `name` is marked by `gettext_noop`: the log has it in English, the page in its language.

        Any other error of a replica is raised: the whole page is then read from the primary.
        """
        if time.monotonic() > self._deadline:
            self.timed_out.append(gettext(name))
            return None
        try:
            with self._limit(), find_database.timeout_elsewhere(self._seconds):
                return query()
        except DatabaseError as error:
            if database.is_on_replica() and not database.dialect().is_timeout_error(error):
                raise
            logger.warning("The admin shows no %s (%s).", name, error.__class__.__name__)
            self.timed_out.append(gettext(name))
            return None

    @contextmanager
    def in_database(self, alias: str) -> Iterator["TimedQueries"]:
        """Run queries on one of several databases, with its own timeout and the time of the page.

        Raises the error of a database that does not respond.
        """
        with database.using(alias), timed_queries(self._seconds) as there:
            there._deadline = self._deadline
            yield there
        self.timed_out += there.timed_out

    def of_primary(self, name: str, query: Callable[[], T]) -> T | None:
        """Return the result of a query that a replica does not know, or knows too late."""
        if not database.is_on_replica():
            return self(name, query)
        with database.on_primary(), timed_queries(self._seconds) as of_primary:
            result = of_primary(name, query)
        self.timed_out += of_primary.timed_out
        return result


@contextmanager
def timed_queries(seconds: float = QUERY_SECONDS) -> Iterator[TimedQueries]:
    """Run queries with a timeout of so many seconds each."""
    with database.dialect().query_timeout(database.connection(), seconds) as limit:
        yield TimedQueries(limit, seconds)
