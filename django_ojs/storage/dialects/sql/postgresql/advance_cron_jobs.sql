-- Moves cron jobs on to their next occurrence: those whose `due_at` is still the one that was read.
--
-- In the order of the names, so that two schedulers cannot deadlock; one that finds a row locked has
-- lost it.
WITH given AS (
    SELECT * FROM json_to_recordset(%(rows)s::json) AS r (
        name text, due_at timestamptz, next_due_at timestamptz, next_run_at timestamptz,
        missed bigint)
), locked AS (
    SELECT c.name FROM ojs_cron_job AS c JOIN given AS g USING (name)
    WHERE c.due_at = g.due_at
    ORDER BY c.name
    FOR UPDATE OF c SKIP LOCKED
)
UPDATE ojs_cron_job AS c
SET due_at = g.next_due_at, next_run_at = g.next_run_at, missed_count = missed_count + g.missed
FROM given AS g JOIN locked USING (name)
WHERE c.name = g.name AND c.due_at = g.due_at
RETURNING c.name
