"""Pages that may be some seconds old are read from the replica that READ_DATABASE names.

Only what decides nothing and changes nothing: lists, searches, charts and statistics. Claims,
admission, transitions and single jobs are always read from the primary. Where the replica does not
respond, is too far behind, or fails a query, the page is read from the primary and says so.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from django.db import Error, connections
from django.utils.connection import ConnectionDoesNotExist
from django.utils.functional import lazy
from django.utils.translation import gettext as _
from django.utils.translation import pgettext, pgettext_lazy

from django_ojs import formatting
from django_ojs.conf import settings
from django_ojs.formatting import StrOrPromise, lazy_sentence
from django_ojs.storage import database, in_memory_state

T = TypeVar("T")

logger = logging.getLogger("django_ojs")

#: Seconds for which a replica that did not respond is left alone, so that not every page waits for
#: its timeout.
REST: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PageSource:
    """Where a page was read that may come from the replica.

    `lag`: how far the replica is behind; None: it was read from the primary. `problem`: why the
    replica could not be used, as the end of a sentence about it, in the language of the reader.
    """

    lag: timedelta | None = None
    problem: StrOrPromise = ""

    @property
    def text(self) -> str:
        """Return a sentence for the page; an empty one for what the primary had to serve."""
        if self.lag is not None:
            return _("Read from the replica, %(duration)s behind.") % {
                "duration": lag_text(self.lag)
            }
        if not self.problem:
            return ""
        return _("Read from the primary: the replica %(problem)s.") % {"problem": self.problem}


_source: Final[ContextVar[PageSource | None]] = ContextVar("django_ojs_source", default=None)


class Monitor:
    """What this process knows of the replica."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Forget that the replica was away."""
        #: Why the replica could not be used when it was asked last.
        self.problem: StrOrPromise = ""
        self._away_until = 0.0

    def look(self, using: str) -> PageSource:
        """Return whether the replica can be read now, and how far it is behind."""
        with self._lock:
            now = time.monotonic()
            if now < self._away_until:
                return PageSource(problem=self.problem)
            if self._away_until:
                # One thread tries it again; the others do not wait with it.
                self._away_until = now + REST
        try:
            lag, problem = measure(using)
        except Error as error:
            lag = None
            problem = lazy_sentence(
                pgettext_lazy("the replica", "does not respond (%(reason)s)"),
                reason=database.unavailable_reason(error),
            )
            with self._lock:
                self._away_until = time.monotonic() + REST
        else:
            with self._lock:
                self._away_until = 0.0
        if problem and not self.problem:
            with formatting.in_english():
                logger.warning("Pages are read from the primary: the replica %s.", problem)
        elif self.problem and not problem:
            logger.info("Pages are read from the replica again.")
        self.problem = problem
        return PageSource(problem=problem) if problem else PageSource(lag=lag)


monitor: Final = in_memory_state.register(Monitor())


def is_configured() -> bool:
    """Whether there is a replica for reading."""
    return settings().read_database not in (None, database.primary_alias())


def source() -> PageSource | None:
    """Return where the page is read that is being made; None for one that needs the primary."""
    return _source.get()


def problem() -> StrOrPromise:
    """Return why the replica could not be used when this process asked it last, or nothing."""
    return monitor.problem if is_configured() else ""


def lag_text(lag: timedelta) -> str:
    """Return how far a replica is behind, as "0.8 s"."""
    seconds = lag.total_seconds()
    if seconds < 60:
        return pgettext("duration", "%(number)s s") % {
            "number": formatting.decimal(f"{seconds:.1f}")
        }
    return formatting.duration(seconds).replace(formatting.THIN, " ")


_lag_text_lazily: Final = lazy(lag_text, str)


def read(page: Callable[[], T], *, missing: tuple[type[Exception], ...] = ()) -> T:
    """Call a function whose queries may read the replica, and again on the primary if need be.

    What it writes, it writes on the primary only. `missing`: what it raises for something that does
    not exist, which only the primary knows for sure.
    """
    using = settings().read_database
    # Within another read, that one decides.
    if using is None or not is_configured() or _source.get() is not None:
        return page()
    primary_knows: tuple[type[Exception], ...] = (database.NeedsPrimary, *missing)
    found = monitor.look(using)
    if found.lag is not None:
        try:
            return _call(page, found, using)
        except Error as error:
            # Such as one that ends while it reads, or has not replayed a migration yet. If it is
            # the page that is wrong, it fails on the primary too.
            logger.warning("A page is read from the primary (%s).", error.__class__.__name__)
            found = PageSource(problem=pgettext("the replica", "failed a query"))
        except primary_knows:
            found = PageSource()
    return _call(page, found, None)


def _call(page: Callable[[], T], found: PageSource, using: str | None) -> T:
    with ExitStack() as stack:
        stack.enter_context(database.having(_source, found))
        if using is not None:
            stack.enter_context(database.on_replica(using))
        return page()


def measure(using: str) -> tuple[timedelta | None, StrOrPromise]:
    """Return how far the replica is behind, and why it cannot be used, or an empty text.

    Raises `django.db.Error` if it does not respond.
    """
    try:
        link = connections[using]
    except ConnectionDoesNotExist:
        return None, pgettext_lazy("the replica", "is not in DATABASES")
    primary, at_most = database.connection(database.primary_alias()), settings().read_max_lag
    if link.vendor != primary.vendor:
        return None, pgettext_lazy("the replica", "is another kind of database")
    # One that was opened before the replica was started again fails once.
    was_open = link.connection is not None
    dialect = database.dialect_of(primary)
    try:
        found = dialect.replication(primary, link, at_most)
    except Error:
        _close(using)
        if not was_open:
            raise
        found = dialect.replication(primary, link, at_most)
    if not found.is_replica:
        return None, pgettext_lazy("the replica", "is not one of the database that holds the jobs")
    if found.lag is None:
        return None, pgettext_lazy("the replica", "does not say how far it is behind")
    if found.lag > at_most:
        return found.lag, lazy_sentence(
            pgettext_lazy("the replica", "is %(duration)s behind"),
            duration=_lag_text_lazily(found.lag),
        )
    return found.lag, ""


def _close(using: str) -> None:
    link = connections[using]
    # In a caller's transaction it must stay, though nothing can be done with it.
    if not link.in_atomic_block:
        link.close()
