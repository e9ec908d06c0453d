-- Stores a run of a cron job.
INSERT INTO ojs_cron_run (name, job_id, scheduled_at, triggered_at, triggered_by, phase)
VALUES (%(name)s, %(job_id)s, %(scheduled_at)s, UTC_TIMESTAMP(6), %(triggered_by)s, %(phase)s)
