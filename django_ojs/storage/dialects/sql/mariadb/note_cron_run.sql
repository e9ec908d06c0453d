-- Notes on a cron job that it has enqueued a job.
UPDATE ojs_cron_job SET last_run_at = {now}, last_job_id = %(job_id)s, run_count = run_count + 1
WHERE name = %(name)s
