-- Notes on cron jobs that they have enqueued a job.
UPDATE ojs_cron_job
SET last_run_at = {now}, last_job_id = replace(r.value ->> 'job_id', '-', ''),
    run_count = run_count + 1
FROM json_each(%(runs)s) AS r
WHERE ojs_cron_job.name = r.value ->> 'name'
