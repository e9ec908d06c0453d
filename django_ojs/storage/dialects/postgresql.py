"""PostgreSQL 14 and later."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.spec import json
from django_ojs.spec.states import Event, State, initial
from django_ojs.storage.dialects.base import CLAIMED, Dialect, Move, Row, Stored

#: The channel on which idle workers listen; the payload is a queue's name.
CHANNEL = "ojs"

_FETCH = Move(Event.FETCH, State.ACTIVE)
_ACK = Move(Event.ACK, State.COMPLETED)
_TIMER = Move(Event.TIMER, State.AVAILABLE)

# One text parameter carries any number of jobs: one round trip, one plan, and json is dumped and
# parsed in C at both ends. A microsecond per row keeps the order of a batch, whatever its ids.
_INSERT = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, timeout_ms, visibility_timeout_ms, created_at, enqueued_at,
                     due_at, expires_at, dead_letter)
SELECT id, type, queue, state, priority, args, meta,
       CASE WHEN due_in IS NULL AND expires_in IS NULL THEN options
            ELSE options || jsonb_strip_nulls(jsonb_build_object(
                'scheduled_at', CASE WHEN due_in IS NOT NULL THEN
                    to_char(due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END,
                'expires_at', CASE WHEN expires_in IS NOT NULL THEN
                    to_char(expires AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END)) END,
       0, max_attempts, 0, 0, timeout_ms, visibility_timeout_ms, now,
       CASE WHEN state = '{State.AVAILABLE}' THEN now END,
       due, expires, false
FROM (
    SELECT r.*, statement_timestamp() + (n - 1) * interval '1 microsecond' AS now,
           x.due, x.expires,
           CASE WHEN r.pending THEN '{initial(State.PENDING)}'
                WHEN x.due > statement_timestamp() THEN '{initial(State.SCHEDULED)}'
                ELSE '{initial(State.AVAILABLE)}' END AS state
    FROM ROWS FROM (json_to_recordset(%s::json) AS (
        id uuid, type text, queue text, priority smallint, args jsonb, meta jsonb, options jsonb,
        max_attempts integer, timeout_ms bigint, visibility_timeout_ms bigint, pending boolean,
        due_at timestamptz, due_in double precision,
        expires_at timestamptz, expires_in double precision
    )) WITH ORDINALITY AS r (
        id, type, queue, priority, args, meta, options,
        max_attempts, timeout_ms, visibility_timeout_ms, pending,
        due_at, due_in,
        expires_at, expires_in, n)
    CROSS JOIN LATERAL (
        SELECT COALESCE(r.due_at,
                        statement_timestamp() + r.due_in * interval '1 second') AS due,
               COALESCE(r.expires_at,
                        statement_timestamp() + r.expires_in * interval '1 second') AS expires
    ) AS x
) AS rows
ON CONFLICT (id) DO NOTHING
RETURNING id, state, created_at, enqueued_at, due_at, expires_at
"""

# One job that is available at once needs none of that, and the planner is done in a tenth of the
# time: the whole enqueue takes half as long.
_INSERT_ONE = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, timeout_ms, visibility_timeout_ms, created_at, enqueued_at,
                     dead_letter)
VALUES (%s, %s, %s, '{initial(State.AVAILABLE)}', %s, %s, %s, %s, 0, %s,
        0, 0, %s, %s, statement_timestamp(), statement_timestamp(), false)
ON CONFLICT (id) DO NOTHING
RETURNING id, state, created_at, enqueued_at, due_at, expires_at
"""
_NOT_PLAIN = {"pending", "due_at", "due_in", "expires_at", "expires_in"}

# The inner SELECT runs once, before the UPDATE touches anything; what it locked, nobody else has.
_CLAIM = f"""
UPDATE ojs_job
SET state = {_FETCH.to}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = statement_timestamp(),
    lease_until = statement_timestamp() + interval '1 millisecond' *
        CASE WHEN %(own)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s) ELSE %(lease_ms)s END
WHERE id = ANY(ARRAY(
    SELECT id FROM ojs_job
    WHERE queue = %(queue)s AND {_FETCH.expected}
      AND (expires_at IS NULL OR expires_at > statement_timestamp())
      AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name = %(queue)s AND paused_at IS NOT NULL)
    ORDER BY priority DESC, enqueued_at, id
    LIMIT %(count)s
    FOR UPDATE SKIP LOCKED
))
RETURNING {", ".join(CLAIMED)}
"""

_COMPLETE = f"""
UPDATE ojs_job AS j
SET state = {_ACK.to}, finished_at = statement_timestamp(), result = r.result, error = NULL,
    lease_until = NULL
FROM json_to_recordset(%(finished)s::json) AS r (id uuid, run integer, result jsonb)
WHERE j.id = r.id AND j.run = r.run AND j.worker_id = %(worker_id)s AND j.{_ACK.expected}
RETURNING j.id
"""

_PROMOTE = f"""
WITH due AS MATERIALIZED (
    SELECT id, due_at FROM ojs_job
    WHERE {_TIMER.expected} AND due_at <= statement_timestamp()
    ORDER BY due_at, id LIMIT %s FOR UPDATE SKIP LOCKED
), ordered AS (SELECT id, row_number() OVER (ORDER BY due_at, id) AS n FROM due)
UPDATE ojs_job AS j
SET state = {_TIMER.to}, enqueued_at = statement_timestamp() + ordered.n * interval '1 microsecond'
FROM ordered WHERE j.id = ordered.id
RETURNING j.id, j.queue
"""

_COUNTED = (
    "SELECT queue, state, n FROM ojs_count UNION ALL SELECT queue, state, n FROM ojs_count_change"
)

_COUNTS = f"""
SELECT queue, state, sum(n)::bigint FROM ({_COUNTED}) AS counted
WHERE %(queues)s::text[] IS NULL OR queue = ANY(%(queues)s)
GROUP BY queue, state ORDER BY queue, state
"""

# In the order of the key, so that two that fold at once never wait for each other in a circle.
_FOLD = """
WITH changes AS (DELETE FROM ojs_count_change RETURNING queue, state, n),
folded AS (
    INSERT INTO ojs_count AS c (queue, state, n)
    SELECT queue, state, sum(n) FROM changes GROUP BY queue, state ORDER BY queue, state
    ON CONFLICT (queue, state) DO UPDATE SET n = c.n + EXCLUDED.n
)
SELECT count(*) FROM changes
"""

_DIFFERENCES = f"""
SELECT queue, state, COALESCE(counted.n, 0)::bigint, COALESCE(actual.n, 0)
FROM (SELECT queue, state, sum(n) AS n FROM ({_COUNTED}) AS c GROUP BY queue, state) AS counted
FULL JOIN (SELECT queue, state, count(*) AS n FROM ojs_job GROUP BY queue, state) AS actual
    USING (queue, state)
WHERE COALESCE(counted.n, 0) <> COALESCE(actual.n, 0)
ORDER BY queue, state
"""

# The difference is one more change, found and added under one snapshot: what others change
# meanwhile adds up as ever.
_REPAIR = f"""
WITH wrong (queue, state, counted, actual) AS ({_DIFFERENCES}),
mended AS (INSERT INTO ojs_count_change SELECT queue, state, actual - counted FROM wrong)
SELECT queue, state, counted, actual FROM wrong
"""

# The notification commits by itself and need not reach the disk: it is a hint, and a poll follows
# anyway.
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), {}"

_DEAD_SESSIONS = """
SELECT id, session_pid, session_started_at FROM ojs_worker AS w
WHERE session_pid IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM pg_stat_activity AS a
    WHERE a.pid = w.session_pid AND a.backend_start = w.session_started_at)
"""

_DEADLOCK, _LOCK_NOT_AVAILABLE, _SERIALIZATION = "40P01", "55P03", "40001"


def _parameters(row: Row) -> list[Any]:
    return [
        row["id"],
        row["type"],
        row["queue"],
        row["priority"],
        json.dumps(row["args"]),
        json.dumps(row["meta"]),
        json.dumps(row["options"]),
        row["max_attempts"],
        row.get("timeout_ms"),
        row.get("visibility_timeout_ms"),
    ]


class PostgreSQL(Dialect):
    """PostgreSQL through psycopg 3."""

    can_notify = True
    has_sessions = True

    def insert(self, connection: BaseDatabaseWrapper, rows: Sequence[Row]) -> list[Stored]:
        with connection.cursor() as cursor:
            if len(rows) == 1 and not _NOT_PLAIN & rows[0].keys():
                cursor.execute(_INSERT_ONE, _parameters(rows[0]))
            else:
                cursor.execute(_INSERT, [json.dumps(rows)])
            return [Stored(*row) for row in cursor.fetchall()]

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
            return {row[0] for row in cursor.fetchall()}

    def promote(self, connection: BaseDatabaseWrapper, limit: int) -> list[tuple[UUID, str]]:
        with connection.cursor() as cursor:
            cursor.execute(_PROMOTE, [limit])
            return cast("list[tuple[UUID, str]]", cursor.fetchall())

    def counts(
        self, connection: BaseDatabaseWrapper, queues: list[str] | None
    ) -> list[tuple[str, str, int]]:
        with connection.cursor() as cursor:
            cursor.execute(_COUNTS, {"queues": queues})
            return cast("list[tuple[str, str, int]]", cursor.fetchall())

    def fold_counts(self, connection: BaseDatabaseWrapper) -> int:
        with connection.cursor() as cursor:
            cursor.execute(_FOLD)
            return cast("int", cursor.fetchone()[0])

    def count_differences(self, connection: BaseDatabaseWrapper) -> list[tuple[str, str, int, int]]:
        with connection.cursor() as cursor:
            cursor.execute(_DIFFERENCES)
            return cast("list[tuple[str, str, int, int]]", cursor.fetchall())

    def repair_counts(self, connection: BaseDatabaseWrapper) -> list[tuple[str, str, int, int]]:
        with connection.cursor() as cursor:
            cursor.execute(_REPAIR)
            return cast("list[tuple[str, str, int, int]]", cursor.fetchall())

    def tidy(self, connection: BaseDatabaseWrapper) -> None:
        # Autovacuum looks once a minute; by then tens of thousands of dead changes would stand
        # between a reader and the live ones.
        if not connection.in_atomic_block:
            with connection.cursor() as cursor:
                cursor.execute("VACUUM ojs_count_change")

    def begin_write(self, connection: BaseDatabaseWrapper) -> None:
        """Nothing to do: rows are locked as they are touched."""

    def lost_a_race(self, error: OperationalError) -> bool:
        return getattr(error.__cause__, "sqlstate", None) in (
            _DEADLOCK,
            _LOCK_NOT_AVAILABLE,
            _SERIALIZATION,
        )

    def uuid(self, value: Any) -> UUID:
        return cast("UUID", value)

    def time(self, value: Any) -> datetime | None:
        return cast("datetime | None", value)

    def notify(self, connection: BaseDatabaseWrapper, queues: Sequence[str]) -> None:
        calls = ", ".join(f"pg_notify('{CHANNEL}', %s)" for _ in queues)
        with connection.cursor() as cursor:
            cursor.execute(_NOTIFY.format(calls), list(queues))

    def session(self, connection: BaseDatabaseWrapper) -> tuple[int, datetime] | None:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
            )
            pid, started_at = cursor.fetchone()
        # A pooler answers the start-up packet itself, with a process id of its own invention: then
        # the server process is not ours, and its end would mean nothing.
        promised = connection.connection.info.backend_pid
        return (pid, started_at) if pid == promised else None

    def dead_sessions(self, connection: BaseDatabaseWrapper) -> list[tuple[str, int, datetime]]:
        with connection.cursor() as cursor:
            cursor.execute(_DEAD_SESSIONS)
            return cast("list[tuple[str, int, datetime]]", cursor.fetchall())
