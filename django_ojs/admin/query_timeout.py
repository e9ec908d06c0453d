"""Questions to the database that a page does without when they take too long."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from django.db import DatabaseError

from django_ojs.storage import database
from django_ojs.storage.dialects.base import QueryLimit

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: Seconds for one question, and for all questions of a page.
PATIENCE: Final = 1.5
PATIENCE_OF_A_PAGE: Final = 5.0


class Asking:
    """Asks until a page's time is up; what is not known is None, and shown as a dash."""

    def __init__(self, limit: QueryLimit) -> None:
        self._limit = limit
        self._until = time.monotonic() + PATIENCE_OF_A_PAGE
        #: Names of what was not answered in time.
        self.unknown: list[str] = []

    def __call__(self, what: str, question: Callable[[], T]) -> T | None:
        """Return the answer, or None if it did not come in time."""
        if time.monotonic() > self._until:
            self.unknown.append(what)
            return None
        try:
            with self._limit():
                return question()
        except DatabaseError as error:
            logger.warning("The admin shows no %s (%s).", what, error.__class__.__name__)
            self.unknown.append(what)
            return None


@contextmanager
def asking(seconds: float = PATIENCE) -> Iterator[Asking]:
    """Let a page ask, each question for at most so many seconds."""
    with database.dialect().query_timeout(database.connection(), seconds) as limit:
        yield Asking(limit)


__all__ = ["PATIENCE", "Asking", "asking"]
