-- How much of the limits of a queue is used, for the holder of the write lock: the active jobs, the
-- starts, and the time in milliseconds; and that it sees all that was committed.
SELECT (SELECT count(*) FROM ojs_job WHERE state {before_ack} AND queue = %(queue)s),
       (SELECT starts FROM ojs_limited_queue WHERE queue = %(queue)s),
       CAST((julianday('now') - 2440587.5) * 86400000 AS integer),
       1
