-- The best available jobs of a queue and their sizes, locked, except those that other workers have
-- locked.
--
-- The index has them in this order: a sort would lock every job of the queue.
--
-- If the queue has a rule that the caller does not apply, or a job that is open only to claims with such
-- a rule, there are no jobs, but one row without an id.
(SELECT id, coalesce(size_bytes, 0) FROM ojs_job FORCE INDEX (ojs_job_claim)
WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
  AND (expires_at IS NULL OR expires_at > {now})
  AND NOT EXISTS (SELECT 1 FROM ojs_queue
                  WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                    AND (paused_at IS NOT NULL OR rules & ~%(applied)s))
  AND NOT coalesce((
      SELECT hold < 64 AND (1 << hold) & ~%(applied)s FROM ojs_job FORCE INDEX (ojs_job_claim)
      WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 ORDER BY hold LIMIT 1
  ), 0)
ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UNION ALL
(SELECT NULL, 0 FROM (SELECT 1) AS one WHERE EXISTS (
    SELECT 1 FROM ojs_queue
    WHERE name IN (%(queue)s, {all_queues}, {default_policy}) AND rules & ~%(applied)s
) OR (
    SELECT hold < 64 AND (1 << hold) & ~%(applied)s FROM ojs_job FORCE INDEX (ojs_job_claim)
    WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 ORDER BY hold LIMIT 1
))
