-- Stores any number of jobs in the order in which they were given.
--
-- One JSON parameter carries all of them: one round trip and one plan, and JSON is written and
-- parsed in C at both ends. Each row is a microsecond later than the one before, so that a batch
-- keeps its order whatever its ids are. Relative times are added to the database's clock, and are
-- written into `options` as the absolute times that they became.
--
-- {{where_admitted}} asks, once and before the first row, whether the queues have room.
-- {{on_conflict}} skips ids that are taken; generated ids cannot be taken, and the check costs a
-- tenth of the time.
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, timeout_ms, visibility_timeout_ms, created_at, enqueued_at,
                     due_at, expires_at, unique_key, marks, parent_id, size_bytes, dead_letter)
SELECT id, type, queue, state, priority, args::jsonb, meta::jsonb,
       CASE WHEN due_in IS NULL AND expires_in IS NULL THEN options::jsonb
            ELSE options::jsonb || jsonb_strip_nulls(jsonb_build_object(
                'scheduled_at', CASE WHEN due_in IS NOT NULL THEN
                    to_char(due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END,
                'expires_at', CASE WHEN expires_in IS NOT NULL THEN
                    to_char(expires AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END)) END,
       0, max_attempts, 0, 0, timeout_ms, visibility_timeout_ms, now,
       CASE WHEN state = {available} THEN now END,
       due, LEAST(expires, now + longest_wait * interval '1 second'), unique_key, COALESCE(marks, 0), parent_id, size, false
FROM (
    SELECT r.*, statement_timestamp() + (n - 1) * interval '1 microsecond' AS now,
           x.due, x.expires,
           octet_length(type) + octet_length(queue) + octet_length(args::text)
               + octet_length(meta::text) + octet_length(options::text) AS size,
           CASE WHEN r.pending THEN {pending}
                WHEN x.due > statement_timestamp() THEN {scheduled}
                ELSE {available} END AS state
    FROM ROWS FROM (json_to_recordset(%s::json) AS (
        id uuid, type text, queue text, priority smallint, args json, meta json, options json,
        max_attempts integer, timeout_ms bigint, visibility_timeout_ms bigint, pending boolean,
        due_at timestamptz, due_in double precision,
        expires_at timestamptz, expires_in double precision, longest_wait integer, unique_key text, marks bigint,
        parent_id uuid
    )) WITH ORDINALITY AS r (
        id, type, queue, priority, args, meta, options,
        max_attempts, timeout_ms, visibility_timeout_ms, pending,
        due_at, due_in,
        expires_at, expires_in, longest_wait, unique_key, marks, parent_id, n)
    CROSS JOIN LATERAL (
        SELECT COALESCE(r.due_at,
                        statement_timestamp() + r.due_in * interval '1 second') AS due,
               COALESCE(r.expires_at,
                        statement_timestamp() + r.expires_in * interval '1 second') AS expires
    ) AS x
) AS rows
{{where_admitted}}
{{on_conflict}}
RETURNING id, state, (EXTRACT(EPOCH FROM created_at) * 1000000)::bigint,
          (EXTRACT(EPOCH FROM enqueued_at) * 1000000)::bigint, due_at, expires_at, size_bytes
