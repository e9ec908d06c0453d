-- Stores the runs of cron jobs, given as one JSON array.
INSERT INTO ojs_cron_run (name, job_id, scheduled_at, triggered_at, triggered_by, phase)
SELECT value ->> 'name', replace(value ->> 'job_id', '-', ''), value ->> 'scheduled_at', {now},
       value ->> 'triggered_by', value ->> 'phase'
FROM json_each(%(runs)s)
