"""SQLite 3.38 and later, for development, tests and small sites.

One writer at a time; its lock is the only lock.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec import json
from django_ojs.storage.dialects import sqlite_sql as sql
from django_ojs.storage.dialects.base import (
    Dialect,
    Difference,
    Row,
    Session,
    Stored,
)

_PYTHON_FORMAT = "%Y-%m-%d %H:%M:%S.%f"


class SQLite(Dialect):
    """SQLite through the standard library."""

    now = sql.NOW
    can_notify = False
    has_sessions = False

    def insert(
        self, connection: BaseDatabaseWrapper, rows: Sequence[Row], *, new: bool, admit: bool
    ) -> list[Stored] | None:
        with connection.cursor() as cursor:
            # SQLite's clock stops at milliseconds, and jobs pushed within one must keep their
            # order, those of a batch too.
            now = datetime.now(UTC)
            text = json.dumps(
                [
                    {**row, "now": (now + timedelta(microseconds=n)).strftime(_PYTHON_FORMAT)}
                    for n, row in enumerate(rows)
                ]
            )
            cursor.execute(
                sql.INSERT.format(room=sql.NO_BOUND if admit else "true"), {"rows": text}
            )
            found = cursor.fetchall()
        if admit and not found:
            return None
        return [
            Stored(
                self.uuid(key),
                state,
                *cast("Any", [*map(self.time, times), size]),
            )
            for key, state, size, *times in found
        ]

    def oldest(self, connection: BaseDatabaseWrapper, queue: str, most: int) -> list[UUID]:
        with connection.cursor() as cursor:
            cursor.execute(sql.OLDEST, [queue, most])
            return [self.uuid(row[0]) for row in cursor.fetchall()]

    def take_turn(self, connection: BaseDatabaseWrapper, queue: str, seconds: float) -> str | None:
        self.begin_write(connection)
        return ""

    def renew(self, connection: BaseDatabaseWrapper, queue: str) -> None:
        """Nothing to do: there are no tickets."""

    def depth(
        self, connection: BaseDatabaseWrapper, queue: str, states: Sequence[str]
    ) -> list[tuple[str, int, int]]:
        marks = ", ".join(["%s"] * len(states))
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT state, n, bytes FROM ojs_count WHERE queue = %s AND state IN ({marks})",
                [queue, *states],
            )
            return cast("list[tuple[str, int, int]]", cursor.fetchall())

    def spend(
        self, connection: BaseDatabaseWrapper, queue: str, version: str, cost: int, room: int
    ) -> None:
        """Nothing to do: who has the write lock can look."""

    def claim(
        self,
        connection: BaseDatabaseWrapper,
        *,
        queue: str,
        count: int,
        worker_id: str | None,
        lease_ms: int,
        own: bool,
    ) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(
                sql.CLAIM,
                {
                    "queue": queue,
                    "count": count,
                    "worker_id": worker_id,
                    "lease_ms": lease_ms,
                    "own": own,
                },
            )
            return cast("list[tuple[Any, ...]]", cursor.fetchall())

    def complete(self, connection: BaseDatabaseWrapper, worker_id: str, finished: str) -> set[UUID]:
        with connection.cursor() as cursor:
            cursor.execute(sql.COMPLETE, {"worker_id": worker_id, "finished": finished})
            return {self.uuid(row[0]) for row in cursor.fetchall()}

    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> list[tuple[UUID, str]]:
        with connection.cursor() as cursor:
            # After whatever was pushed within this millisecond; its last digits order the batch.
            next_millisecond = datetime.now(UTC) + timedelta(milliseconds=1)
            now = next_millisecond.strftime(_PYTHON_FORMAT)[:-3]
            cursor.execute(sql.PROMOTE, {"limit": limit, "now": now})
            return [(self.uuid(key), queue) for key, queue in cursor.fetchall()]

    def counts(
        self, connection: BaseDatabaseWrapper, queues: list[str] | None
    ) -> list[tuple[str, str, int]]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT queue, state, n FROM ojs_count ORDER BY queue, state")
            rows = cast("list[tuple[str, str, int]]", cursor.fetchall())
        return [row for row in rows if queues is None or row[0] in queues]

    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        """Nothing to do: triggers write the counts themselves."""
        return 0

    def count_differences(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        with connection.cursor() as cursor:
            cursor.execute(sql.DIFFERENCES)
            return cast("list[Difference]", cursor.fetchall())

    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[Difference]:
        wrong = self.count_differences(connection)
        with connection.cursor() as cursor:
            for queue, state, _, actual, _, size in wrong:
                cursor.execute(
                    "INSERT INTO ojs_count (queue, state, n, bytes) VALUES (%s, %s, %s, %s) "
                    "ON CONFLICT (queue, state) DO UPDATE "
                    "SET n = excluded.n, bytes = excluded.bytes",
                    [queue, state, actual, size],
                )
        return wrong

    def waiting(self, connection: BaseDatabaseWrapper) -> tuple[bool, bool]:
        with connection.cursor() as cursor:
            cursor.execute(sql.WAITING, {})
            due, expired = cursor.fetchone()
        return bool(due), bool(expired)

    def dead_workers(self, connection: BaseDatabaseWrapper) -> list[tuple[str, Session | None]]:
        with connection.cursor() as cursor:
            cursor.execute(sql.SILENT, {})
            return [(row[0], None) for row in cursor.fetchall()]

    def begin_write(self, connection: BaseDatabaseWrapper) -> None:
        # A deferred transaction that reads first and writes later fails at once when another has
        # written in between, without waiting. A write that changes nothing takes the lock, and
        # waits for it.
        with connection.cursor() as cursor:
            cursor.execute("UPDATE ojs_job SET run = run WHERE 0")

    def lock_keys(self, connection: BaseDatabaseWrapper, keys: Sequence[str]) -> bool:
        # The one writer's lock is the lock on every key. It cannot be had on an old snapshot.
        self.begin_write(connection)
        return True

    def take_turns(self, connection: BaseDatabaseWrapper, what: str) -> None:
        self.begin_write(connection)

    def add_events(self, connection: BaseDatabaseWrapper, events: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql.ADD_EVENTS, {"events": events})

    def can_write(self, connection: BaseDatabaseWrapper) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA query_only")
            return not cursor.fetchone()[0]

    def notify(self, connection: BaseDatabaseWrapper, queues: Sequence[str]) -> None:
        """Nothing to do: nobody can listen."""

    def lost_a_race(self, error: OperationalError) -> bool:
        return "database is locked" in str(error) or "database table is locked" in str(error)

    def uuid(self, value: Any) -> UUID:
        return UUID(value)

    def time(self, value: Any) -> datetime | None:
        # Django's converters have read the columns that are declared as times.
        # `now` is text: an expression is declared as nothing.
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return cast("datetime", moment).replace(tzinfo=UTC) if value is not None else None
