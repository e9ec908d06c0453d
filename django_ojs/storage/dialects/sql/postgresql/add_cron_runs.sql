-- Stores the runs of cron jobs, given as one JSON array, and notes on the cron jobs that they ran.
WITH given AS (
    SELECT * FROM json_to_recordset(%(runs)s::json) AS r (
        name text, job_id uuid, scheduled_at timestamptz, triggered_by text, phase text)
), noted AS (
    UPDATE ojs_cron_job AS c
    SET last_run_at = statement_timestamp(), last_job_id = g.job_id, run_count = run_count + 1
    FROM given AS g
    WHERE c.name = g.name
)
INSERT INTO ojs_cron_run (name, job_id, scheduled_at, triggered_at, triggered_by, phase)
SELECT name, job_id, scheduled_at, statement_timestamp(), triggered_by, phase FROM given
