-- Whether a scheduled or retryable job is due, for so many seconds.
--
-- The least time, not EXISTS: that can only be read from the end of the index.
SELECT (SELECT min(due_at) FROM ojs_job WHERE state {before_timer})
           <= statement_timestamp() - %(since)s * interval '1 second'
