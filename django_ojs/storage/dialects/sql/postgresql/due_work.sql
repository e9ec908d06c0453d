-- Whether a scheduled or retryable job is due, whether a waiting job has expired, and whether a cron
-- job is due; each for so many seconds. A cron job is also due while a run of one is held.
--
-- The least time, not EXISTS: that can only be read from the end of the index.
SELECT (SELECT min(due_at) FROM ojs_job WHERE state {before_timer})
           <= statement_timestamp() - %(since)s * interval '1 second',
       (SELECT min(expires_at) FROM ojs_job
        WHERE expires_at IS NOT NULL AND state {before_expire})
           <= statement_timestamp() - %(since)s * interval '1 second',
       (SELECT min(due_at) FROM ojs_cron_job WHERE due_at IS NOT NULL)
           <= statement_timestamp() - %(since)s * interval '1 second'
           OR EXISTS (SELECT FROM ojs_cron_run WHERE phase = 'held')
