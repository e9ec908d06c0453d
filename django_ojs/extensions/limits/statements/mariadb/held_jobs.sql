-- The best held jobs of a key in a queue, locked.
SELECT limit_key, queue, id, JSON_EXTRACT(options, '$.rate_limit')
FROM ojs_job FORCE INDEX (ojs_job_limit_waiting)
WHERE limit_key = %(key)s AND state {before_fetch} AND queue = %(queue)s AND hold = 78
ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
