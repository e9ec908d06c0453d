-- Whether a scheduled or retryable job is due, and whether a waiting job has expired; both for so
-- many seconds.
SELECT (SELECT min(due_at) FROM ojs_job WHERE state {before_timer})
           <= {now} - INTERVAL %(since)s * 1000000 MICROSECOND,
       (SELECT min(expires_at) FROM ojs_job
        WHERE expires_at IS NOT NULL AND state {before_expire})
           <= {now} - INTERVAL %(since)s * 1000000 MICROSECOND
