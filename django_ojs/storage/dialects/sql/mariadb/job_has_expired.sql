-- Whether a waiting job has expired, for so many seconds; the least time as in job_is_due.sql.
SELECT (SELECT min(expires_at) FROM ojs_job
        WHERE expires_at IS NOT NULL AND state {before_expire})
           <= {now} - INTERVAL %(since)s * 1000000 MICROSECOND
