-- Stores any number of jobs, given as one JSON array, and skips ids that are taken.
--
-- Relative times are added to the time of the row, in milliseconds, and are written into `options` as
-- the absolute times that they became. They are not added to 'now': the clock of the test helpers
-- replaces strftime, which then finds another time for each call.
--
-- {{room}} is the condition under which the jobs are stored (see no_bound.sql).
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, timeout_ms, visibility_timeout_ms, created_at, enqueued_at,
                     due_at, expires_at, unique_key, marks, parent_id, size_bytes, dead_letter)
SELECT replace(v ->> 'id', '-', ''), v ->> 'type', v ->> 'queue', state, v ->> 'priority',
       v -> 'args', v -> 'meta',
       CASE WHEN due_in IS NOT NULL AND expires_in IS NOT NULL
            THEN json_set(v -> 'options',
                          '$.scheduled_at', strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', due),
                          '$.expires_at', strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', expires))
            WHEN due_in IS NOT NULL
            THEN json_set(v -> 'options',
                          '$.scheduled_at', strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', due))
            WHEN expires_in IS NOT NULL
            THEN json_set(v -> 'options',
                          '$.expires_at', strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', expires))
            ELSE v -> 'options' END,
       0, v ->> 'max_attempts', 0, 0, v ->> 'timeout_ms', v ->> 'visibility_timeout_ms',
       v ->> 'now', CASE WHEN state = {available} THEN v ->> 'now' END, due,
       CASE WHEN v ->> 'longest_wait' IS NULL THEN expires
            ELSE min(coalesce(expires, '9999'),
                     strftime('%%Y-%%m-%%d %%H:%%M:%%f', substr(v ->> 'now', 1, 23),
                              printf('%%+d seconds', v ->> 'longest_wait'))) END,
       v ->> 'unique_key', coalesce(v ->> 'marks', 0),
       replace(v ->> 'parent_id', '-', ''),
       length(CAST(v ->> 'type' AS BLOB)) + length(CAST(v ->> 'queue' AS BLOB))
           + length(CAST(v -> 'args' AS BLOB)) + length(CAST(v -> 'meta' AS BLOB))
           + length(CAST(v -> 'options' AS BLOB)),
       0
FROM (
    SELECT *, CASE WHEN v ->> 'pending' THEN {pending}
                   WHEN due > {now} THEN {scheduled}
                   ELSE {available} END AS state
    FROM (
        SELECT value AS v,
               value ->> 'due_in' AS due_in, value ->> 'expires_in' AS expires_in,
               COALESCE(substr(value ->> 'due_at', 1, 26),
                        CASE WHEN value ->> 'due_in' IS NOT NULL THEN
                            strftime('%%Y-%%m-%%d %%H:%%M:%%f', substr(value ->> 'now', 1, 23),
                                     printf('%%+.3f seconds', value ->> 'due_in')) END
                       ) AS due,
               COALESCE(substr(value ->> 'expires_at', 1, 26),
                        CASE WHEN value ->> 'expires_in' IS NOT NULL THEN
                            strftime('%%Y-%%m-%%d %%H:%%M:%%f', substr(value ->> 'now', 1, 23),
                                     printf('%%+.3f seconds', value ->> 'expires_in')) END
                       ) AS expires
        FROM json_each(%(rows)s))
)
WHERE {{room}}
ON CONFLICT (id) DO NOTHING
RETURNING id, state, size_bytes, created_at, enqueued_at, due_at, expires_at
