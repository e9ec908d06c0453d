-- The best available jobs of a tenant and priority in a queue, locked: `number` after the first `skip`.
SELECT id, priority, {tenant}, enqueued_at, coalesce(size_bytes, 0), hold
FROM ojs_job FORCE INDEX (ojs_job_tenant_turn)
WHERE queue = %(queue)s AND state {before_fetch} AND hold < 64 {{isolation}}
  AND priority = %(priority)s AND {tenant} = %(tenant)s
  AND (expires_at IS NULL OR expires_at > {now}){{condition}}
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                            AND paused_at IS NOT NULL)
ORDER BY enqueued_at, id LIMIT %(number)s OFFSET %(skip)s FOR UPDATE SKIP LOCKED
