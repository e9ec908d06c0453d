"""The statements of PostgreSQL 14 and later."""

from django_ojs.spec.states import State, Trigger, initial
from django_ojs.storage.dialects.base import ALL_QUEUES, CLAIMED, Move

#: The channel on which idle workers listen; the payload is a queue's name.
CHANNEL = "ojs"

_FETCH = Move(Trigger.FETCH, State.ACTIVE)
_ACK = Move(Trigger.ACK, State.COMPLETED)
_TIMER = Move(Trigger.TIMER, State.AVAILABLE)
_EXPIRE = Move(Trigger.EXPIRE, State.DISCARDED)

# One text parameter carries any number of jobs: one round trip, one plan, and json is dumped and
# parsed in C at both ends. A microsecond per row keeps the order of a batch, whatever its ids.
_INSERT = f"""
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, timeout_ms, visibility_timeout_ms, created_at, enqueued_at,
                     due_at, expires_at, unique_key, size_bytes, dead_letter)
SELECT id, type, queue, state, priority, args::jsonb, meta::jsonb,
       CASE WHEN due_in IS NULL AND expires_in IS NULL THEN options::jsonb
            ELSE options::jsonb || jsonb_strip_nulls(jsonb_build_object(
                'scheduled_at', CASE WHEN due_in IS NOT NULL THEN
                    to_char(due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END,
                'expires_at', CASE WHEN expires_in IS NOT NULL THEN
                    to_char(expires AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END)) END,
       0, max_attempts, 0, 0, timeout_ms, visibility_timeout_ms, now,
       CASE WHEN state = '{State.AVAILABLE}' THEN now END,
       due, expires, unique_key, size, false
FROM (
    SELECT r.*, statement_timestamp() + (n - 1) * interval '1 microsecond' AS now,
           x.due, x.expires,
           octet_length(type) + octet_length(queue) + octet_length(args::text)
               + octet_length(meta::text) + octet_length(options::text) AS size,
           CASE WHEN r.pending THEN '{initial(State.PENDING)}'
                WHEN x.due > statement_timestamp() THEN '{initial(State.SCHEDULED)}'
                ELSE '{initial(State.AVAILABLE)}' END AS state
    FROM ROWS FROM (json_to_recordset(%s::json) AS (
        id uuid, type text, queue text, priority smallint, args json, meta json, options json,
        max_attempts integer, timeout_ms bigint, visibility_timeout_ms bigint, pending boolean,
        due_at timestamptz, due_in double precision,
        expires_at timestamptz, expires_in double precision, unique_key text
    )) WITH ORDINALITY AS r (
        id, type, queue, priority, args, meta, options,
        max_attempts, timeout_ms, visibility_timeout_ms, pending,
        due_at, due_in,
        expires_at, expires_in, unique_key, n)
    CROSS JOIN LATERAL (
        SELECT COALESCE(r.due_at,
                        statement_timestamp() + r.due_in * interval '1 second') AS due,
               COALESCE(r.expires_at,
                        statement_timestamp() + r.expires_in * interval '1 second') AS expires
    ) AS x
) AS rows
"""

_STORED = """
RETURNING id, state, (EXTRACT(EPOCH FROM created_at) * 1000000)::bigint,
          (EXTRACT(EPOCH FROM enqueued_at) * 1000000)::bigint, due_at, expires_at, size_bytes
"""

# Asked once, before the first row is stored.
_ALL_ADMITTED = """
WHERE (SELECT ojs_admit_all(%s::text[], %s::bigint[], %s::bigint[], %s))
"""

# Looking for taken ids costs a tenth; ours cannot be.
_SKIP_TAKEN = "ON CONFLICT (id) DO NOTHING"

#: By whether the ids are ours, and whether to ask for room.
INSERT = {
    (new, admit): " ".join(
        [_INSERT, _ALL_ADMITTED if admit else "", "" if new else _SKIP_TAKEN, _STORED]
    )
    for new in (True, False)
    for admit in (True, False)
}

# One job that is available at once needs none of that: the procedure of migration 0008 stores it by
# a plan that it keeps, and what has no value is left to its defaults.
PUSH_ONE = "CALL ojs_push(NULL, %s, %s, %s, %s, %s, %s{})"

# A turn, waited for until the lock timeout. An old snapshot shows nothing of what came meanwhile:
# then there is nothing to wait for.
TAKE_TURN = """
SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true),
       current_setting('transaction_isolation') LIKE 'read %%',
       CASE WHEN current_setting('transaction_isolation') LIKE 'read %%'
            THEN pg_advisory_xact_lock(20298, hashtext(%s)) END
"""

#: The lock timeout as it was, and the bound's version as it is now that nobody else moves it.
TURN_TAKEN = """
SELECT set_config('lock_timeout', %s, true), (SELECT xmin::text FROM ojs_bound WHERE queue = %s)
"""

# The claim index is by priority first: the oldest of each priority, and the oldest of those. There
# are few priorities, and looking for the next one is a step in the index.
OLDEST = f"""
WITH RECURSIVE priorities (priority) AS (
    (SELECT priority FROM ojs_job WHERE queue = %(queue)s AND {_FETCH.expected}
     ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT j.priority FROM ojs_job AS j
            WHERE queue = %(queue)s AND {_FETCH.expected} AND j.priority < p.priority
            ORDER BY j.priority DESC LIMIT 1)
    FROM priorities AS p WHERE p.priority IS NOT NULL
)
SELECT j.id FROM priorities AS p CROSS JOIN LATERAL (
    SELECT id, enqueued_at FROM ojs_job
    WHERE queue = %(queue)s AND {_FETCH.expected} AND priority = p.priority
    ORDER BY enqueued_at, id LIMIT %(most)s FOR UPDATE SKIP LOCKED
) AS j
ORDER BY j.enqueued_at, j.id LIMIT %(most)s
"""

DEPTH = """
SELECT state, sum(n)::bigint, sum(bytes)::bigint FROM (
    SELECT state, n, bytes FROM ojs_count WHERE queue = %(queue)s AND state = ANY(%(states)s)
    UNION ALL
    SELECT state, n, bytes FROM ojs_count_change
    WHERE queue = %(queue)s AND state = ANY(%(states)s)
) AS counted
GROUP BY state
"""

# Of another version is what was configured meanwhile: under that bound, nobody has looked yet.
SPEND = """
WITH paid AS MATERIALIZED (
    SELECT ojs_spend(slot, %(cost)s) AS last FROM ojs_bound WHERE queue = %(queue)s
)
UPDATE ojs_bound AS b SET since = paid.last, until = paid.last + %(room)s FROM paid
WHERE b.queue = %(queue)s AND b.xmin = %(version)s::xid
"""

# Held by the transaction, and so through a pooler too. A look in the same statement would not see
# what was committed while it waited.
LOCK_KEYS = """
SELECT pg_advisory_xact_lock(key), current_setting('transaction_isolation')
FROM unnest(%s::bigint[]) AS key
"""

# The inner SELECT runs once, before the UPDATE touches anything; what it locked, nobody else has.
CLAIM = f"""
UPDATE ojs_job
SET state = {_FETCH.to}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = statement_timestamp(),
    lease_until = statement_timestamp() + interval '1 millisecond' *
        CASE WHEN %(own)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s) ELSE %(lease_ms)s END
WHERE id = ANY(ARRAY(
    SELECT id FROM ojs_job
    WHERE queue = %(queue)s AND {_FETCH.expected}
      AND (expires_at IS NULL OR expires_at > statement_timestamp())
      AND NOT EXISTS (SELECT 1 FROM ojs_queue
                      WHERE name IN (%(queue)s, '{ALL_QUEUES}') AND paused_at IS NOT NULL)
    ORDER BY priority DESC, enqueued_at, id
    LIMIT %(count)s
    FOR UPDATE SKIP LOCKED
))
RETURNING {", ".join(CLAIMED)}
"""

COMPLETE = f"""
UPDATE ojs_job AS j
SET state = {_ACK.to}, finished_at = statement_timestamp(), result = r.result, error = NULL,
    lease_until = NULL
FROM json_to_recordset(%(finished)s::json) AS r (id uuid, run integer, result jsonb)
WHERE j.id = r.id AND j.run = r.run AND j.worker_id = %(worker_id)s AND j.{_ACK.expected}
RETURNING j.id
"""

PROMOTE = f"""
WITH due AS MATERIALIZED (
    SELECT id, due_at FROM ojs_job
    WHERE {_TIMER.expected} AND due_at <= statement_timestamp()
      AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name = '{ALL_QUEUES}' AND paused_at IS NOT NULL)
    ORDER BY due_at, id LIMIT %s FOR UPDATE SKIP LOCKED
), ordered AS (SELECT id, row_number() OVER (ORDER BY due_at, id) AS n FROM due)
UPDATE ojs_job AS j
SET state = {_TIMER.to}, enqueued_at = statement_timestamp() + ordered.n * interval '1 microsecond'
FROM ordered WHERE j.id = ordered.id
RETURNING j.id, j.queue
"""

_COUNTED = (
    "SELECT queue, state, n, bytes FROM ojs_count "
    "UNION ALL SELECT queue, state, n, bytes FROM ojs_count_change"
)

COUNTS = f"""
SELECT queue, state, sum(n)::bigint FROM ({_COUNTED}) AS counted
WHERE %(queues)s::text[] IS NULL OR queue = ANY(%(queues)s)
GROUP BY queue, state ORDER BY queue, state
"""

# In the order of the key, so that two that fold at once never wait for each other in a circle.
FOLD = """
WITH changes AS (DELETE FROM ojs_count_change RETURNING queue, state, n, bytes),
folded AS (
    INSERT INTO ojs_count AS c (queue, state, n, bytes)
    SELECT queue, state, sum(n), sum(bytes) FROM changes
    GROUP BY queue, state ORDER BY queue, state
    ON CONFLICT (queue, state) DO UPDATE
    SET n = c.n + EXCLUDED.n, bytes = c.bytes + EXCLUDED.bytes
)
SELECT count(*) FROM changes
"""

DIFFERENCES = f"""
SELECT queue, state, COALESCE(counted.n, 0)::bigint, COALESCE(actual.n, 0),
       COALESCE(counted.bytes, 0)::bigint, COALESCE(actual.bytes, 0)::bigint
FROM (SELECT queue, state, sum(n) AS n, sum(bytes) AS bytes
      FROM ({_COUNTED}) AS c GROUP BY queue, state) AS counted
FULL JOIN (SELECT queue, state, count(*) AS n, coalesce(sum(size_bytes), 0) AS bytes
           FROM ojs_job GROUP BY queue, state) AS actual USING (queue, state)
WHERE (COALESCE(counted.n, 0), COALESCE(counted.bytes, 0))
      <> (COALESCE(actual.n, 0), COALESCE(actual.bytes, 0))
ORDER BY queue, state
"""

# The difference is one more change, found and added under one snapshot: what others change
# meanwhile adds up as ever.
REPAIR = f"""
WITH wrong (queue, state, counted, actual, counted_bytes, bytes) AS ({DIFFERENCES}),
mended AS (
    INSERT INTO ojs_count_change
    SELECT queue, state, actual - counted, bytes - counted_bytes FROM wrong
)
SELECT queue, state, counted, actual, counted_bytes, bytes FROM wrong
"""

# The notification commits by itself and need not reach the disk: it is a hint, and a poll follows
# anyway.
NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), {}"

# The least due time, not EXISTS: it can only be read from the end of the index.
WAITING = f"""
SELECT (SELECT min(due_at) FROM ojs_job WHERE {_TIMER.expected}) <= statement_timestamp(),
       (SELECT min(expires_at) FROM ojs_job
        WHERE expires_at IS NOT NULL AND {_EXPIRE.expected}) <= statement_timestamp()
"""

DEAD_WORKERS = """
SELECT id, NULL, NULL FROM ojs_worker
WHERE beat_at <= statement_timestamp() - dead_after_ms * interval '1 millisecond'
UNION ALL
SELECT id, session_pid, session_started_at FROM ojs_worker AS w
WHERE session_pid IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM pg_stat_activity AS a
    WHERE a.pid = w.session_pid AND a.backend_start = w.session_started_at)
"""

# The first number keeps our locks apart from those of others in the same database.
TAKE_TURNS = "SELECT pg_advisory_xact_lock(20297, hashtext(%s))"

ADD_EVENTS = """
INSERT INTO ojs_event (event_id, type, time, subject, queue, data)
SELECT event_id, type, statement_timestamp(), subject, queue, data
FROM json_to_recordset(%s::json) AS (
    event_id uuid, type text, subject text, queue text, data jsonb)
"""
