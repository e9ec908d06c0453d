-- The best jobs of a queue that are open to all claims, or to claims with a rule, locked.
SELECT id, priority, enqueued_at, coalesce(size_bytes, 0), hold
FROM ojs_job FORCE INDEX (ojs_job_claim)
WHERE queue = %(queue)s AND state {before_fetch} AND hold {{hold}} {{isolation}}
  AND (expires_at IS NULL OR expires_at > {now})
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                            AND paused_at IS NOT NULL)
ORDER BY hold, priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
