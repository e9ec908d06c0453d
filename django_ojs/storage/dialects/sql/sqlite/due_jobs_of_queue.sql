-- The jobs of one queue that are due, earliest first, and their states.
--
-- As due_jobs.sql; SQLite has no lateral join, so this is executed for each queue.
SELECT id, state FROM ojs_job
WHERE queue = %(queue)s AND state {before_timer} AND due_at <= {now}
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name = {all_queues} AND paused_at IS NOT NULL)
ORDER BY due_at, id LIMIT %(limit)s
