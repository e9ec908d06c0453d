-- The limits of queues and how much of them is used: the active jobs, the starts, and the time in
-- milliseconds; and 1, because it sees all that was committed. The active jobs are counted once for all of
-- the queues, because their index begins with the worker.
SELECT wanted.value, coalesce(running.jobs, 0),
       (SELECT starts FROM ojs_limited_queue WHERE queue = wanted.value),
       CAST((julianday('now') - 2440587.5) * 86400000 AS integer),
       1,
       (SELECT config FROM ojs_queue WHERE name = wanted.value),
       (SELECT config FROM ojs_queue WHERE name = {default_policy})
FROM json_each(%(keys)s) AS wanted
LEFT JOIN (SELECT queue, count(*) AS jobs FROM ojs_job
           WHERE state {before_ack} AND queue IN (SELECT value FROM json_each(%(keys)s)) GROUP BY queue
) AS running ON running.queue = wanted.value
