-- The jobs of one queue that are due, earliest first; not locked, as in due_jobs.sql.
SELECT id FROM ojs_job
WHERE queue = %(queue)s AND state {before_timer} AND due_at <= {now}
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name = {all_queues} AND paused_at IS NOT NULL)
ORDER BY due_at, id LIMIT %(limit)s
