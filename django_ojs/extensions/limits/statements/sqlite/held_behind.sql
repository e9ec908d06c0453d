-- The best held jobs of a key and queue with other policies than these, among the best
-- `behind` jobs.
SELECT id, policy FROM (
    SELECT id, priority, enqueued_at, options -> '$.rate_limit' AS policy FROM ojs_job
    WHERE options ->> '$.limit_key' = %(key)s AND queue = %(queue)s AND state {before_fetch} AND hold = 78
    ORDER BY priority DESC, enqueued_at, id LIMIT %(behind)s
)
WHERE policy NOT IN (SELECT value FROM json_each(%(policies)s))
ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s
