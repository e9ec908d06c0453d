-- The best held jobs of each of these keys and each queue: jobs of a queue that is paused or has no worker
-- do not keep back the jobs of another queue.
SELECT limit_key, queue, id, policy FROM (
    SELECT options ->> '$.limit_key' AS limit_key, queue, id, options -> '$.rate_limit' AS policy,
           row_number() OVER (PARTITION BY options ->> '$.limit_key', queue
                                 ORDER BY priority DESC, enqueued_at, id) AS n
    FROM ojs_job
    WHERE options ->> '$.limit_key' IN (SELECT value FROM json_each(%(keys)s))
      AND queue IN (SELECT name FROM ojs_queue WHERE rules & %(rule)s)
      AND state {before_fetch} AND hold = 78
)
WHERE n <= %(limit)s ORDER BY limit_key, queue, n
