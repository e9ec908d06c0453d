-- Stores how the latest runs of these jobs ended; before their state is changed.
INSERT INTO ojs_attempt (job_id, attempt, run, worker_id, outcome, started_at, finished_at, error,
                         retry_delay_ms)
SELECT id, attempt, run, worker_id, %(outcome)s, started_at, {now}, %(error)s, %(delay_ms)s
FROM ojs_job FORCE INDEX (PRIMARY) WHERE id IN %(keys)s
