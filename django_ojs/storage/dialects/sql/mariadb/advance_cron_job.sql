-- Moves a cron job on to its next occurrence, which the caller has locked.
UPDATE ojs_cron_job
SET due_at = %(next_due_at)s, next_run_at = %(next_run_at)s, missed_count = missed_count + %(missed)s
WHERE name = %(name)s
