"""SQLite 3.38 and later, for development, tests and small sites.

There is one writer at a time, and the write lock is the only lock.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from django.core.checks import CheckMessage, Error, Warning
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec import json
from django_ojs.storage.dialects.base import (
    Dialect,
    Difference,
    QueryLimit,
    Row,
    Session,
    Stored,
)
from django_ojs.storage.dialects.sql_files import load

#: As Django stores times: text, in UTC.
_NOW = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')"

_ADD_EVENTS = load("sqlite", "add_events", now=_NOW)
_BEGIN_WRITE = load("sqlite", "begin_write")
_CAN_WRITE = load("sqlite", "can_write")
_CLAIM = load("sqlite", "claim", now=_NOW)
_COMPLETE = load("sqlite", "complete", now=_NOW)
_COUNTS = load("sqlite", "counts")
_COUNT_DIFFERENCES = load("sqlite", "count_differences")
_DEAD_WORKERS = load("sqlite", "dead_workers", now=_NOW)
_DUE_WORK = load("sqlite", "due_work", now=_NOW)
_INSERT_JOBS = load("sqlite", "insert_jobs", now=_NOW, room="true")
_INSERT_JOBS_IF_UNBOUNDED = load("sqlite", "insert_jobs", now=_NOW, room=load("sqlite", "no_bound"))
_OLDEST_AVAILABLE = load("sqlite", "oldest_available")
_PROMOTE = load("sqlite", "promote", now=_NOW)
_QUEUE_COUNTS = load("sqlite", "queue_counts")
_REPAIR_COUNT = load("sqlite", "repair_count")

_OLDEST_SUPPORTED = (3, 38, 0)
#: Instructions of SQLite's virtual machine between two checks of the clock.
_INSTRUCTIONS = 20_000

_PYTHON_FORMAT = "%Y-%m-%d %H:%M:%S.%f"


class SQLite(Dialect):
    """SQLite through the standard library."""

    now = _NOW
    backend = "sqlite"
    can_notify = False
    has_sessions = False

    def insert_jobs(
        self,
        connection: BaseDatabaseWrapper,
        rows: Sequence[Row],
        *,
        generated_ids: bool,
        only_if_admitted: bool,
    ) -> list[Stored] | None:
        with connection.cursor() as cursor:
            # SQLite's clock has milliseconds, and jobs pushed within one must keep their order; so
            # must those of a batch.
            now = datetime.now(UTC)
            text = json.dumps(
                [
                    {**row, "now": (now + timedelta(microseconds=n)).strftime(_PYTHON_FORMAT)}
                    for n, row in enumerate(rows)
                ]
            )
            cursor.execute(
                _INSERT_JOBS_IF_UNBOUNDED if only_if_admitted else _INSERT_JOBS, {"rows": text}
            )
            found = cursor.fetchall()
        if only_if_admitted and not found:
            return None
        return [
            Stored(
                self.uuid(key),
                state,
                *cast("Any", [*map(self.time, times), size]),
            )
            for key, state, size, *times in found
        ]

    def oldest_available(
        self, connection: BaseDatabaseWrapper, queue: str, limit: int
    ) -> list[UUID]:
        with connection.cursor() as cursor:
            cursor.execute(_OLDEST_AVAILABLE, [queue, limit])
            return [self.uuid(row[0]) for row in cursor.fetchall()]

    def lock_queue(self, connection: BaseDatabaseWrapper, queue: str, timeout: float) -> str | None:
        self.begin_write(connection)
        return ""

    def renew_tickets(self, connection: BaseDatabaseWrapper, queue: str) -> None:
        """Nothing to do: the holder of the write lock can count."""

    def queue_counts(
        self, connection: BaseDatabaseWrapper, queue: str, states: Sequence[str]
    ) -> list[tuple[str, int, int]]:
        with connection.cursor() as cursor:
            cursor.execute(_QUEUE_COUNTS, {"queue": queue, "states": json.dumps(list(states))})
            return cast("list[tuple[str, int, int]]", cursor.fetchall())

    def spend_tickets(
        self, connection: BaseDatabaseWrapper, queue: str, version: str, cost: int, room: int
    ) -> None:
        """Nothing to do: the holder of the write lock can count."""

    def claim(
        self,
        connection: BaseDatabaseWrapper,
        *,
        queue: str,
        limit: int,
        worker_id: str | None,
        lease_ms: int,
        own_lease: bool,
    ) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(
                _CLAIM,
                {
                    "queue": queue,
                    "limit": limit,
                    "worker_id": worker_id,
                    "lease_ms": lease_ms,
                    "own_lease": own_lease,
                },
            )
            return cast("list[tuple[Any, ...]]", cursor.fetchall())

    def complete(self, connection: BaseDatabaseWrapper, worker_id: str, finished: str) -> set[UUID]:
        with connection.cursor() as cursor:
            cursor.execute(_COMPLETE, {"worker_id": worker_id, "finished": finished})
            return {self.uuid(row[0]) for row in cursor.fetchall()}

    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> list[tuple[UUID, str]]:
        with connection.cursor() as cursor:
            # After each job pushed within this millisecond; three more digits order the batch.
            next_millisecond = datetime.now(UTC) + timedelta(milliseconds=1)
            now = next_millisecond.strftime(_PYTHON_FORMAT)[:-3]
            cursor.execute(_PROMOTE, {"limit": limit, "now": now})
            return [(self.uuid(key), queue) for key, queue in cursor.fetchall()]

    def counts(
        self, connection: BaseDatabaseWrapper, queues: list[str] | None
    ) -> list[tuple[str, str, int]]:
        with connection.cursor() as cursor:
            cursor.execute(_COUNTS)
            rows = cast("list[tuple[str, str, int]]", cursor.fetchall())
        return [row for row in rows if queues is None or row[0] in queues]

    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        """Nothing to do: triggers write the counts themselves."""
        return 0

    def count_differences(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        with connection.cursor() as cursor:
            cursor.execute(_COUNT_DIFFERENCES)
            return cast("list[Difference]", cursor.fetchall())

    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        wrong = self.count_differences(connection)
        with connection.cursor() as cursor:
            for queue, state, _, actual, _, size in wrong:
                cursor.execute(_REPAIR_COUNT, [queue, state, actual, size])
        return wrong

    @contextmanager
    def query_timeout(
        self, connection: BaseDatabaseWrapper, seconds: float
    ) -> Iterator[QueryLimit]:
        @contextmanager
        def limit() -> Iterator[None]:
            connection.ensure_connection()
            until = time.monotonic() + seconds
            raw: Any = connection.connection
            raw.set_progress_handler(lambda: time.monotonic() > until, _INSTRUCTIONS)
            try:
                yield
            finally:
                raw.set_progress_handler(None, 0)

        yield limit

    def check(self, connection: BaseDatabaseWrapper) -> list[CheckMessage]:
        problems: list[CheckMessage] = []
        if sqlite3.sqlite_version_info < _OLDEST_SUPPORTED:
            problems.append(
                Error(
                    f"django_ojs needs SQLite 3.38; Python here has {sqlite3.sqlite_version}.",
                    id="django_ojs.E004",
                )
            )
        if connection.settings_dict["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
            problems.append(
                Warning(
                    f"The SQLite database {connection.alias!r} opens transactions in deferred "
                    "mode: one that reads and then writes fails with 'database is locked' when "
                    "a worker wrote in between.",
                    hint=(
                        f"DATABASES[{connection.alias!r}]['OPTIONS']['transaction_mode']"
                        " = 'IMMEDIATE'"
                    ),
                    id="django_ojs.W001",
                )
            )
        return problems

    def due_work(self, connection: BaseDatabaseWrapper) -> tuple[bool, bool]:
        with connection.cursor() as cursor:
            cursor.execute(_DUE_WORK, {})
            due, expired = cursor.fetchone()
        return bool(due), bool(expired)

    def dead_workers(
        self, connection: BaseDatabaseWrapper, *, away: float = 0.0, back_for: float = 0.0
    ) -> list[tuple[str, Session | None]]:
        with connection.cursor() as cursor:
            cursor.execute(_DEAD_WORKERS, {"away": away, "back_for": back_for})
            return [(row[0], None) for row in cursor.fetchall()]

    def begin_write(self, connection: BaseDatabaseWrapper) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_BEGIN_WRITE)

    def lock_unique_keys(self, connection: BaseDatabaseWrapper, keys: Sequence[str]) -> bool:
        # The write lock locks every key. A transaction with an old snapshot cannot take it.
        self.begin_write(connection)
        return True

    def lock_subject(self, connection: BaseDatabaseWrapper, subject: str) -> None:
        self.begin_write(connection)

    def add_events(self, connection: BaseDatabaseWrapper, events: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_ADD_EVENTS, {"events": events})

    def can_write(self, connection: BaseDatabaseWrapper) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(_CAN_WRITE)
            return not cursor.fetchone()[0]

    def notify(self, connection: BaseDatabaseWrapper, queues: Sequence[str]) -> None:
        """Nothing to do: a connection cannot listen."""

    def is_contention_error(self, error: OperationalError) -> bool:
        return "database is locked" in str(error) or "database table is locked" in str(error)

    def uuid(self, value: Any) -> UUID:
        return UUID(value)

    def time(self, value: Any) -> datetime | None:
        # Django's converters read the columns that are declared as times; an expression, such as
        # `now`, has no declared type and comes as text.
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return cast("datetime", moment).replace(tzinfo=UTC) if value is not None else None
