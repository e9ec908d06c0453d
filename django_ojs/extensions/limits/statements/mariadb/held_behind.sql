-- The best held jobs of a key and queue with other policies than these, among the best
-- `behind` jobs. They are not locked.
SELECT id FROM (
    SELECT id, priority, enqueued_at, JSON_EXTRACT(options, '$.rate_limit') AS policy FROM ojs_job
    WHERE limit_key = %(key)s AND queue = %(queue)s AND state {before_fetch} AND hold = 78
    ORDER BY priority DESC, enqueued_at, id LIMIT %(behind)s
) AS best
WHERE policy NOT IN %(policies)s
ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s
