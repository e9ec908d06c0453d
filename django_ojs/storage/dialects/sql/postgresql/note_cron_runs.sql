-- Notes on cron jobs that they have enqueued a job.
UPDATE ojs_cron_job AS c
SET last_run_at = statement_timestamp(), last_job_id = r.job_id, run_count = run_count + 1
FROM json_to_recordset(%(rows)s::json) AS r (name text, job_id uuid)
WHERE c.name = r.name
