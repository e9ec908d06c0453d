-- Stores how the latest run of each of these jobs ended, before their states change, which may
-- clear `worker_id`.
INSERT INTO ojs_attempt (job_id, attempt, run, worker_id, outcome, started_at, finished_at, error,
                         retry_delay_ms)
SELECT j.id, j.attempt, j.run, j.worker_id, r.outcome, j.started_at, statement_timestamp(), r.error,
       r.delay_us / 1000
FROM json_to_recordset(%(ended)s::json) AS r (id uuid, outcome text, error jsonb, delay_us bigint)
     JOIN ojs_job AS j ON j.id = r.id
