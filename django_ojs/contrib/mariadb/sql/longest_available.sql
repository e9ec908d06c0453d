-- The available jobs of a queue that have waited longest; not locked, as in due_jobs.sql.
SELECT id FROM ojs_job WHERE queue = %(queue)s AND state {before_fetch}
ORDER BY enqueued_at, id LIMIT %(limit)s
