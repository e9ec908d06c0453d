-- Queues that have scheduled or retryable jobs, in the order of their names, after a name; and
-- whether a job of each is due.
--
-- Each next name, and each least time, is one descent in an index, however many jobs there are.
WITH RECURSIVE queues (queue) AS (
    SELECT min(queue) FROM ojs_job WHERE state {before_timer} AND queue > %(after)s
    UNION ALL
    SELECT (SELECT min(j.queue) FROM ojs_job AS j
            WHERE j.state {before_timer} AND j.queue > queues.queue)
    FROM queues WHERE queues.queue IS NOT NULL
)
SELECT queue, (SELECT min(j.due_at) FROM ojs_job AS j
               WHERE j.state {before_timer} AND j.queue = queues.queue) <= {now}
FROM queues WHERE queue IS NOT NULL
LIMIT %(limit)s
