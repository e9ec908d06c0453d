"""The statements of SQLite 3.38 and later."""

from django_ojs.spec.states import State, Trigger, initial
from django_ojs.storage.dialects.base import ALL_QUEUES, CLAIMED, Move

_FETCH = Move(Trigger.FETCH, State.ACTIVE)
_ACK = Move(Trigger.ACK, State.COMPLETED)
_TIMER = Move(Trigger.TIMER, State.AVAILABLE)
_EXPIRE = Move(Trigger.EXPIRE, State.DISCARDED)

# As Django stores them: text, in UTC.
_FORMAT = "'%%Y-%%m-%%d %%H:%%M:%%f'"
NOW = f"strftime({_FORMAT}, 'now')"


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


INSERT = f"""
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
                   WHEN due > {NOW} THEN '{initial(State.SCHEDULED)}'
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
NO_BOUND = """
NOT EXISTS (
    SELECT 1 FROM ojs_bound AS b CROSS JOIN json_each(%(rows)s) AS r
    WHERE b.queue IN (r.value ->> 'queue', '_default')
      AND (b.ceiling IS NOT NULL OR b.ceiling_bytes IS NOT NULL))
"""

_LEASE = """\
CASE WHEN %(own)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s) ELSE %(lease_ms)s END"""

CLAIM = f"""
UPDATE ojs_job
SET state = {_FETCH.to}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = {NOW}, lease_until = {_later(_LEASE)}
WHERE id IN (
    SELECT id FROM ojs_job
    WHERE queue = %(queue)s AND {_FETCH.expected} AND (expires_at IS NULL OR expires_at > {NOW})
      AND NOT EXISTS (SELECT 1 FROM ojs_queue
                      WHERE name IN (%(queue)s, '{ALL_QUEUES}') AND paused_at IS NOT NULL)
    ORDER BY priority DESC, enqueued_at, id LIMIT %(count)s)
RETURNING {", ".join(CLAIMED)}
"""

COMPLETE = f"""
UPDATE ojs_job
SET state = {_ACK.to}, finished_at = {NOW}, error = NULL, lease_until = NULL,
    result = CASE WHEN json_type(r.value, '$.result') = 'null' THEN NULL
                  ELSE r.value -> 'result' END
FROM json_each(%(finished)s) AS r
WHERE ojs_job.id = replace(r.value ->> 'id', '-', '') AND ojs_job.run = r.value ->> 'run'
  AND ojs_job.worker_id = %(worker_id)s AND ojs_job.{_ACK.expected}
RETURNING id
"""

PROMOTE = f"""
UPDATE ojs_job SET state = {_TIMER.to}, enqueued_at = %(now)s || printf('%%03d', due.n)
FROM (SELECT id, row_number() OVER (ORDER BY due_at, id) AS n FROM ojs_job
      WHERE {_TIMER.expected} AND due_at <= {NOW}
        AND NOT EXISTS (SELECT 1 FROM ojs_queue
                        WHERE name = '{ALL_QUEUES}' AND paused_at IS NOT NULL)
      ORDER BY due_at, id LIMIT %(limit)s) AS due
WHERE ojs_job.id = due.id
RETURNING ojs_job.id, ojs_job.queue
"""


WAITING = f"""
SELECT (SELECT min(due_at) FROM ojs_job WHERE {_TIMER.expected}) <= {NOW},
       (SELECT min(expires_at) FROM ojs_job
        WHERE expires_at IS NOT NULL AND {_EXPIRE.expected}) <= {NOW}
"""

SILENT = f"SELECT id FROM ojs_worker WHERE {_later_than('beat_at', 'dead_after_ms')} <= {NOW}"

ADD_EVENTS = f"""
INSERT INTO ojs_event (event_id, type, time, subject, queue, data)
SELECT replace(value ->> 'event_id', '-', ''), value ->> 'type', {NOW}, value ->> 'subject',
       value ->> 'queue', value -> 'data'
FROM json_each(%(events)s)
"""

DIFFERENCES = """
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

OLDEST = f"""
SELECT id FROM ojs_job WHERE queue = %s AND {_FETCH.expected} ORDER BY enqueued_at, id LIMIT %s
"""
