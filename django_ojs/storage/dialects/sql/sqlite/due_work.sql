-- Whether a scheduled or retryable job is due, whether a waiting job has expired, and whether a cron
-- job is due; each for so many seconds. A cron job is also due while a run of one is held.
--
-- The least time, not EXISTS: that can only be read from the end of the index.
SELECT (SELECT min(due_at) FROM ojs_job WHERE state {before_timer})
           <= strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', printf('-%%.3f seconds', %(since)s)),
       (SELECT min(expires_at) FROM ojs_job
        WHERE expires_at IS NOT NULL AND state {before_expire})
           <= strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', printf('-%%.3f seconds', %(since)s)),
       (SELECT min(due_at) FROM ojs_cron_job WHERE due_at IS NOT NULL)
           <= strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', printf('-%%.3f seconds', %(since)s))
           OR EXISTS (SELECT 1 FROM ojs_cron_run WHERE phase = 'held')
