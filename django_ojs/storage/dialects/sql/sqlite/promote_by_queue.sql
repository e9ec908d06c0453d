-- Makes due jobs of one queue available, earliest first.
--
-- As in promote.sql; SQLite has no lateral join, so this is executed for each queue.
UPDATE ojs_job SET state = {after_timer}, enqueued_at = %(now)s || printf('%%03d', due.n)
FROM (SELECT id, row_number() OVER (ORDER BY due_at, id) AS n FROM ojs_job
      WHERE queue = %(queue)s AND state {before_timer} AND due_at <= {now}
        AND NOT EXISTS (SELECT 1 FROM ojs_queue
                        WHERE name = {all_queues} AND paused_at IS NOT NULL)
      ORDER BY due_at, id LIMIT %(each)s) AS due
WHERE ojs_job.id = due.id
RETURNING ojs_job.id, ojs_job.queue
