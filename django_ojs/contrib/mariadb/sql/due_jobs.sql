-- The jobs that are due, earliest first; not locked: there is no index by time of the two states
-- together, and the sort would lock all that are due.
SELECT id FROM ojs_job
WHERE state {before_timer} AND due_at <= {now}
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name = {all_queues} AND paused_at IS NOT NULL)
ORDER BY due_at, id LIMIT %(limit)s
