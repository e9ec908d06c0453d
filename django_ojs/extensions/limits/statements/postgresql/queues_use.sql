-- The limits of queues and how much of them is used: the active jobs, the starts, and the time in
-- milliseconds; and whether the statement sees all that was committed before the lock of the limits was
-- taken. The active jobs are counted once for all of the queues, because their index begins with the worker.
SELECT wanted.key, coalesce(running.jobs, 0),
       (SELECT starts::text FROM ojs_limited_queue WHERE queue = wanted.key),
       (EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::bigint,
       current_setting('transaction_isolation') LIKE 'read %%',
       (SELECT config::text FROM ojs_queue WHERE name = wanted.key),
       (SELECT config::text FROM ojs_queue WHERE name = {default_policy})
FROM unnest(%(keys)s::text[]) AS wanted (key)
LEFT JOIN (SELECT queue, count(*) AS jobs FROM ojs_job
           WHERE state {before_ack} AND queue = ANY(%(keys)s::text[]) GROUP BY queue
) AS running ON running.queue = wanted.key
