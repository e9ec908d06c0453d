-- Stores how the latest run of each of these jobs ended, before their states change, which may
-- clear `worker_id`.
INSERT INTO ojs_attempt (job_id, attempt, run, worker_id, outcome, started_at, finished_at, error,
                         retry_delay_ms)
SELECT j.id, j.attempt, j.run, j.worker_id, r.value ->> 'outcome', j.started_at, {now},
       NULLIF(r.value -> 'error', 'null'), (r.value ->> 'delay_us') / 1000
FROM json_each(%(ended)s) AS r
     CROSS JOIN ojs_job AS j ON j.id = replace(r.value ->> 'id', '-', '')
