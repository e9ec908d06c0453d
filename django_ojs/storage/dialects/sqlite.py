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
from django_ojs.spec.states import Event, State, initial
from django_ojs.storage.dialects.base import (
    ALL_QUEUES,
    CLAIMED,
    Dialect,
    Difference,
    Move,
    Row,
    Session,
    Stored,
)

_FETCH = Move(Event.FETCH, State.ACTIVE)
_ACK = Move(Event.ACK, State.COMPLETED)
_TIMER = Move(Event.TIMER, State.AVAILABLE)
_EXPIRE = Move(Event.EXPIRE, State.DISCARDED)

# As Django stores them: text, in UTC.
_FORMAT = "'%%Y-%%m-%%d %%H:%%M:%%f'"
_NOW = f"strftime({_FORMAT}, 'now')"
_PYTHON_FORMAT = "%Y-%m-%d %H:%M:%S.%f"


def _later(milliseconds: str) -> str:
    return f"strftime({_FORMAT}, 'now', printf('+%%.3f seconds', ({milliseconds}) / 1000.0))"


def _after(seconds: str) -> str:
    moved = f"strftime({_FORMAT}, 'now', printf('%%+.3f seconds', {seconds}))"
    return f"CASE WHEN {seconds} IS NOT NULL THEN {moved} END"


def _wire(time: str) -> str:
    return f"strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', {time})"


def _later_than(time: str, milliseconds: str) -> str:
    return (
        f"strftime('%%Y-%%m-%%d %%H:%%M:%%f', {time}, "
        f"printf('+%%.3f seconds', {milliseconds} / 1000.0))"
    )


def _bytes(name: str, arrow: str = "->") -> str:
    return f"length(CAST(v {arrow} '{name}' AS BLOB))"


_INSERT = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, timeout_ms, visibility_timeout_ms, created_at, enqueued_at,
                     due_at, expires_at, unique_key, size_bytes, dead_letter)
SELECT replace(v ->> 'id', '-', ''), v ->> 'type', v ->> 'queue', state, v ->> 'priority',
       v -> 'args', v -> 'meta',
       CASE WHEN due_in IS NOT NULL AND expires_in IS NOT NULL
            THEN json_set(v -> 'options', '$.scheduled_at', {_wire("due")},
                                          '$.expires_at', {_wire("expires")})
            WHEN due_in IS NOT NULL
            THEN json_set(v -> 'options', '$.scheduled_at', {_wire("due")})
            WHEN expires_in IS NOT NULL
            THEN json_set(v -> 'options', '$.expires_at', {_wire("expires")})
            ELSE v -> 'options' END,
       0, v ->> 'max_attempts', 0, 0, v ->> 'timeout_ms', v ->> 'visibility_timeout_ms',
       v ->> 'now', CASE WHEN state = '{State.AVAILABLE}' THEN v ->> 'now' END, due, expires,
       v ->> 'unique_key',
       {_bytes("type", "->>")} + {_bytes("queue", "->>")} + {_bytes("args")} + {_bytes("meta")}
           + {_bytes("options")}, 0
FROM (
    SELECT *, CASE WHEN v ->> 'pending' THEN '{initial(State.PENDING)}'
                   WHEN due > {_NOW} THEN '{initial(State.SCHEDULED)}'
                   ELSE '{initial(State.AVAILABLE)}' END AS state
    FROM (
        SELECT value AS v,
               value ->> 'due_in' AS due_in, value ->> 'expires_in' AS expires_in,
               COALESCE(substr(value ->> 'due_at', 1, 26),
                        {_after("value ->> 'due_in'")}) AS due,
               COALESCE(substr(value ->> 'expires_at', 1, 26),
                        {_after("value ->> 'expires_in'")}) AS expires
        FROM json_each(%(rows)s))
)
WHERE {{room}}
ON CONFLICT (id) DO NOTHING
RETURNING id, state, size_bytes, created_at, enqueued_at, due_at, expires_at
"""

# One row of a batch that needs a look sends all of it to have one.
_NO_BOUND = """
NOT EXISTS (
    SELECT 1 FROM ojs_bound AS b CROSS JOIN json_each(%(rows)s) AS r
    WHERE b.queue IN (r.value ->> 'queue', '_default')
      AND (b.ceiling IS NOT NULL OR b.ceiling_bytes IS NOT NULL))
"""

_LEASE = """\
CASE WHEN %(own)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s) ELSE %(lease_ms)s END"""

_CLAIM = f"""
UPDATE ojs_job
SET state = {_FETCH.to}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = {_NOW}, lease_until = {_later(_LEASE)}
WHERE id IN (
    SELECT id FROM ojs_job
    WHERE queue = %(queue)s AND {_FETCH.expected} AND (expires_at IS NULL OR expires_at > {_NOW})
      AND NOT EXISTS (SELECT 1 FROM ojs_queue
                      WHERE name IN (%(queue)s, '{ALL_QUEUES}') AND paused_at IS NOT NULL)
    ORDER BY priority DESC, enqueued_at, id LIMIT %(count)s)
RETURNING {", ".join(CLAIMED)}
"""

_COMPLETE = f"""
UPDATE ojs_job
SET state = {_ACK.to}, finished_at = {_NOW}, error = NULL, lease_until = NULL,
    result = CASE WHEN json_type(r.value, '$.result') = 'null' THEN NULL
                  ELSE r.value -> 'result' END
FROM json_each(%(finished)s) AS r
WHERE ojs_job.id = replace(r.value ->> 'id', '-', '') AND ojs_job.run = r.value ->> 'run'
  AND ojs_job.worker_id = %(worker_id)s AND ojs_job.{_ACK.expected}
RETURNING id
"""

_PROMOTE = f"""
UPDATE ojs_job SET state = {_TIMER.to}, enqueued_at = %(now)s || printf('%%03d', due.n)
FROM (SELECT id, row_number() OVER (ORDER BY due_at, id) AS n FROM ojs_job
      WHERE {_TIMER.expected} AND due_at <= {_NOW}
        AND NOT EXISTS (SELECT 1 FROM ojs_queue
                        WHERE name = '{ALL_QUEUES}' AND paused_at IS NOT NULL)
      ORDER BY due_at, id LIMIT %(limit)s) AS due
WHERE ojs_job.id = due.id
RETURNING ojs_job.id, ojs_job.queue
"""


_WAITING = f"""
SELECT (SELECT min(due_at) FROM ojs_job WHERE {_TIMER.expected}) <= {_NOW},
       (SELECT min(expires_at) FROM ojs_job
        WHERE expires_at IS NOT NULL AND {_EXPIRE.expected}) <= {_NOW}
"""

_SILENT = f"SELECT id FROM ojs_worker WHERE {_later_than('beat_at', 'dead_after_ms')} <= {_NOW}"

_ADD_EVENTS = f"""
INSERT INTO ojs_event (event_id, type, time, subject, queue, data)
SELECT replace(value ->> 'event_id', '-', ''), value ->> 'type', {_NOW}, value ->> 'subject',
       value ->> 'queue', value -> 'data'
FROM json_each(%(events)s)
"""

_DIFFERENCES = """
SELECT queue, state, COALESCE(counted.n, 0), COALESCE(actual.n, 0),
       COALESCE(counted.bytes, 0), COALESCE(actual.bytes, 0)
FROM (SELECT queue, state FROM ojs_count UNION SELECT queue, state FROM ojs_job) AS both
LEFT JOIN ojs_count AS counted USING (queue, state)
LEFT JOIN (SELECT queue, state, count(*) AS n, coalesce(sum(size_bytes), 0) AS bytes
           FROM ojs_job GROUP BY queue, state) AS actual USING (queue, state)
WHERE COALESCE(counted.n, 0) <> COALESCE(actual.n, 0)
   OR COALESCE(counted.bytes, 0) <> COALESCE(actual.bytes, 0)
ORDER BY queue, state
"""


class SQLite(Dialect):
    """SQLite through the standard library."""

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
            cursor.execute(_INSERT.format(room=_NO_BOUND if admit else "true"), {"rows": text})
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
            cursor.execute(
                f"SELECT id FROM ojs_job WHERE queue = %s AND {_FETCH.expected} "
                "ORDER BY enqueued_at, id LIMIT %s",
                [queue, most],
            )
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
                _CLAIM,
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
            cursor.execute(_COMPLETE, {"worker_id": worker_id, "finished": finished})
            return {self.uuid(row[0]) for row in cursor.fetchall()}

    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> list[tuple[UUID, str]]:
        with connection.cursor() as cursor:
            # After whatever was pushed within this millisecond; its last digits order the batch.
            next_millisecond = datetime.now(UTC) + timedelta(milliseconds=1)
            now = next_millisecond.strftime(_PYTHON_FORMAT)[:-3]
            cursor.execute(_PROMOTE, {"limit": limit, "now": now})
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
            cursor.execute(_DIFFERENCES)
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
            cursor.execute(_WAITING, {})
            due, expired = cursor.fetchone()
        return bool(due), bool(expired)

    def dead_workers(self, connection: BaseDatabaseWrapper) -> list[tuple[str, Session | None]]:
        with connection.cursor() as cursor:
            cursor.execute(_SILENT, {})
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
            cursor.execute(_ADD_EVENTS, {"events": events})

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
        return cast("datetime", value).replace(tzinfo=UTC) if value is not None else None
