"""Lets a test stop and move the clock: Django's, and that of the jobs' database."""

import atexit
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Any, Final, Protocol
from unittest import mock

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone
from django.utils.module_loading import import_string

from django_ojs.storage import database

#: The clocks that are stopped: that of the outermost context first.
_frozen: Final[list["Clock"]] = []


class DatabaseClock(Protocol):
    """The clock of one connection."""

    def set(self, moment: datetime) -> None:
        """Stop at a moment."""

    def reset(self) -> None:
        """Return to the present."""


class Clock:
    """The clock of a test. All threads share it, so tests that run at once cannot each move it."""

    def __init__(self, promote: Callable[[], None]) -> None:
        self._promote = promote
        self._moment: datetime | None = None
        self._patch: Any = None
        self._database: DatabaseClock | None = None

    def freeze(self, moment: datetime) -> None:
        if not isinstance(moment, datetime):
            raise TypeError(f"freeze() needs a datetime, not {moment!r}.")
        if timezone.is_naive(moment):
            raise ValueError("freeze() needs a datetime with a time zone.")
        self._moment = moment.astimezone(UTC)
        if self._patch is None:
            _frozen.append(self)
            # `timezone.now` itself cannot be replaced: modules and the defaults of fields have
            # imported it.
            self._patch = mock.patch.object(timezone, "datetime", self._datetime())
            self._patch.start()
            link = database.connection()
            self._database = import_string(database.dialect_of(link).test_clock)(link)
        if self._database is not None:
            try:
                self._database.set(self._moment)
            except ValueError:
                self.unfreeze()
                raise
        self._promote()

    def advance(self, by: timedelta) -> None:
        if not isinstance(by, timedelta):
            raise TypeError(f"advance() needs a timedelta, not {by!r}.")
        self.freeze(timezone.now() + by)

    def unfreeze(self) -> None:
        """Return to the present, or to the clock of the outer context; the jobs stay."""
        if self._patch is not None:
            self._patch.stop()
            self._patch = None
            _frozen.remove(self)
        if self._database is not None:
            self._database.reset()
            self._database = None
        if _frozen:
            _frozen[-1]._set_again()

    def _set_again(self) -> None:
        if self._database is not None and self._moment is not None:
            with suppress(DatabaseError):  # The test has broken its transaction.
                self._database.set(self._moment)

    def _datetime(self) -> type[datetime]:
        clock = self

        class Frozen(datetime, metaclass=_AnyDatetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                assert clock._moment is not None
                moment = clock._moment.astimezone(tz)
                return moment if tz is not None else moment.replace(tzinfo=None)

        return Frozen


class _AnyDatetime(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


class PostgreSQLClock:
    """Hides `statement_timestamp()` behind a function of the same name, for one session.

    The function and the settings are part of the transaction. They are rolled back with the test
    in a TestCase, and set again when a block in the test is rolled back.
    """

    def __init__(self, link: BaseDatabaseWrapper) -> None:
        self._link = link
        with link.cursor() as cursor:
            cursor.execute("SELECT current_setting('search_path')")
            self._path = cursor.fetchone()[0]
        self._moment: datetime | None = None
        self._roll_back: Any = link._savepoint_rollback  # type: ignore[attr-defined]
        self._patch = mock.patch.object(link, "_savepoint_rollback", self._roll_back_and_set)
        self._patch.start()

    def _roll_back_and_set(self, sid: str) -> None:
        self._roll_back(sid)
        if self._moment is not None:
            self.set(self._moment)

    def set(self, moment: datetime) -> None:
        self._moment = moment
        with self._link.cursor() as cursor:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS ojs_testing")
            cursor.execute(
                "CREATE OR REPLACE FUNCTION ojs_testing.statement_timestamp() RETURNS timestamptz "
                "LANGUAGE sql STABLE AS "
                "$$ SELECT current_setting('ojs_testing.now')::timestamptz $$"
            )
            # A schema that is named before pg_catalog is searched before it.
            path = f"ojs_testing, {self._path}, pg_catalog"
            cursor.execute(
                "SELECT set_config('search_path', %s, false),"
                " set_config('ojs_testing.now', %s, false)",
                [path, moment.isoformat()],
            )

    def reset(self) -> None:
        self._patch.stop()
        try:
            with self._link.cursor() as cursor:
                cursor.execute("SELECT set_config('search_path', %s, false)", [self._path])
                cursor.execute("DROP SCHEMA IF EXISTS ojs_testing CASCADE")
        except DatabaseError:
            if not self._link.in_atomic_block:
                raise  # Otherwise the test has broken its transaction, which is rolled back.


class _SQLite:
    """Replaces `strftime`, from which every 'now' of the statements comes, for one connection."""

    def __init__(self, link: BaseDatabaseWrapper) -> None:
        self._stopped_at: str | None = None
        #: When the statement that is being executed began.
        self._began: str | None = None
        self._link = link

    def set(self, moment: datetime) -> None:
        self._link.ensure_connection()
        self._link.connection.create_function("strftime", -1, self._strftime)
        if self not in self._link.execute_wrappers:
            self._link.execute_wrappers.append(self)
        self._stopped_at = _text(moment)

    def reset(self) -> None:
        # The function stays, because a removed one does not bring back SQLite's own.
        self._stopped_at = None

    def __call__(self, execute: Callable[..., Any], *of_statement: Any) -> Any:
        """Give all 'now' of a statement the same value, as SQLite's own function does."""
        self._began = _text(datetime.now(UTC))
        try:
            return execute(*of_statement)
        finally:
            self._began = None

    def _strftime(self, *args: Any) -> Any:
        now = self._stopped_at or self._began or "now"
        values = [now if isinstance(arg, str) and arg.lower() == "now" else arg for arg in args]
        marks = ", ".join("?" * len(values))
        return _unchanged_sqlite().execute(f"SELECT strftime({marks})", values).fetchone()[0]


def _text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds")


def sqlite_clock(link: BaseDatabaseWrapper) -> _SQLite:
    """Return the clock of a connection: the same one each time, because its function stays."""
    before = (wrapper for wrapper in link.execute_wrappers if isinstance(wrapper, _SQLite))
    return next(before, None) or _SQLite(link)


@cache
def _unchanged_sqlite() -> sqlite3.Connection:
    link = sqlite3.connect(":memory:", check_same_thread=False)
    atexit.register(link.close)
    return link
