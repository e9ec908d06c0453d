-- Adds the changes to the counts and deletes them.
--
-- Only one transaction does this at a time, and another one does nothing. ojs.counting is set
-- before the first row: otherwise a trigger leaves the row out (see counts.sql).
WITH counting AS MATERIALIZED (SELECT set_config('ojs.counting', 'on', true)),
alone AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(20297, hashtext('counts')) AS is_locked),
changes AS (
    DELETE FROM ojs_count_change WHERE (SELECT is_locked FROM alone) RETURNING queue, state, n, bytes
),
folded AS (
    INSERT INTO ojs_count AS c (queue, state, n, bytes)
    SELECT queue, state, sum(n), sum(bytes) FROM changes, counting
    GROUP BY queue, state ORDER BY queue, state
    ON CONFLICT (queue, state) DO UPDATE
    SET n = c.n + EXCLUDED.n, bytes = c.bytes + EXCLUDED.bytes
)
SELECT count(*) FROM changes
