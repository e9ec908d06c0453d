-- Queues that have scheduled or retryable jobs, in the order of their names, after a name; and
-- whether a job of each is due.
SELECT queue, min(due_at) <= {now} FROM ojs_job
WHERE state {before_timer} AND queue > %(after)s
GROUP BY queue ORDER BY queue LIMIT %(limit)s
