-- Stores how the latest run of each of these jobs ended, before the state of the job is changed.
INSERT INTO ojs_attempt (job_id, attempt, run, worker_id, outcome, started_at, finished_at, error,
                         retry_delay_ms)
SELECT j.id, j.attempt, j.run, j.worker_id, r.outcome, j.started_at, {now}, r.error,
       r.delay_us DIV 1000
FROM ({{rows}}) AS r STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = r.id
