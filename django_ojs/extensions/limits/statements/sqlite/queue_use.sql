-- The limits of a queue and how much of them is used, for the holder of the write lock: the active jobs, the
-- starts, and the time in milliseconds; and that it sees all that was committed.
SELECT (SELECT count(*) FROM ojs_job WHERE state {before_ack} AND queue = %(queue)s),
       (SELECT starts FROM ojs_limited_queue WHERE queue = %(queue)s),
       CAST((julianday('now') - 2440587.5) * 86400000 AS integer),
       1,
       (SELECT config FROM ojs_queue WHERE name = %(queue)s),
       (SELECT config FROM ojs_queue WHERE name = {default_policy})
