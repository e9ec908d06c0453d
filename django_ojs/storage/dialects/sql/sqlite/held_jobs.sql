-- The best held jobs of each of these keys, by queue: a queue that is paused or has no worker does not
-- keep the jobs of another one.
SELECT limit_key, queue, id, options -> '$.rate_limit' FROM (
    SELECT *, row_number() OVER (PARTITION BY limit_key, queue
                                 ORDER BY priority DESC, enqueued_at, id) AS n
    FROM ojs_job
    WHERE limit_key IN (SELECT value FROM json_each(%(keys)s))
      AND queue IN (SELECT name FROM ojs_queue WHERE rules & %(rule)s)
      AND state {before_fetch} AND hold = 78
)
WHERE n <= %(limit)s ORDER BY limit_key, queue, n
