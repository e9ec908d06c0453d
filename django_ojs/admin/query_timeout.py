"""Questions to the database that a page does without when they take too long."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from django.db import DatabaseError, connections, transaction

from django_ojs.storage import database

logger = logging.getLogger("django_ojs")

T = TypeVar("T")

#: Seconds for one question, and for all questions of a page.
PATIENCE: Final = 1.5
PATIENCE_OF_A_PAGE: Final = 5.0

#: Steps of SQLite's machine between two looks at the clock.
_STEPS: Final = 20_000


class Asking:
    """Asks until a page's time is up; what is not known is None, and shown as a dash."""

    def __init__(self, alias: str, seconds: float) -> None:
        self._alias = alias
        self._seconds = seconds
        self._until = time.monotonic() + PATIENCE_OF_A_PAGE
        #: Names of what was not answered in time.
        self.unknown: list[str] = []

    def __call__(self, what: str, question: Callable[[], T]) -> T | None:
        """Return the answer, or None if it did not come in time."""
        if time.monotonic() > self._until:
            self.unknown.append(what)
            return None
        try:
            # The savepoint: a statement that was stopped must not end the page's transaction.
            with _limited(self._alias, self._seconds):
                return question()
        except DatabaseError as error:
            logger.warning("The admin shows no %s (%s).", what, error.__class__.__name__)
            self.unknown.append(what)
            return None


@contextmanager
def asking(seconds: float = PATIENCE) -> Iterator[Asking]:
    """Let a page ask, each question for at most so many seconds."""
    alias = database.alias()
    if connections[alias].vendor != "postgresql":
        yield Asking(alias, seconds)
        return
    # One transaction: the limit is set once, and ends with it, through a pooler as well.
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('statement_timeout'), "
            "set_config('statement_timeout', %s, true)",
            [str(int(seconds * 1000))],
        )
        (before, _) = cursor.fetchone()
        yield Asking(alias, seconds)
        # The caller's transaction, if there is one, goes on as it was.
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])


@contextmanager
def _limited(alias: str, seconds: float) -> Iterator[None]:
    link = connections[alias]
    if link.vendor != "sqlite":
        with transaction.atomic(using=alias):
            yield
        return
    link.ensure_connection()
    until = time.monotonic() + seconds
    raw: Any = link.connection
    raw.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)


__all__ = ["PATIENCE", "Asking", "asking"]
