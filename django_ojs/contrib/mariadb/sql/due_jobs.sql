-- The jobs that are due, earliest first. They are not locked: no index has both states in the order of
-- time, and the sort would lock all jobs that are due.
SELECT id FROM ojs_job
WHERE state {before_timer} AND due_at <= {now}
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name = {all_queues} AND paused_at IS NOT NULL)
ORDER BY due_at, id LIMIT %(limit)s
