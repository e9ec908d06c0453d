-- Stores how the latest runs of these jobs ended; before their state is changed.
INSERT INTO ojs_attempt (job_id, attempt, run, worker_id, outcome, started_at, finished_at, error,
                         retry_delay_ms)
SELECT id, attempt, run, worker_id, %(outcome)s, started_at, statement_timestamp(),
       %(error)s::jsonb, %(delay_ms)s::bigint
FROM ojs_job WHERE id = ANY(%(keys)s::uuid[])
