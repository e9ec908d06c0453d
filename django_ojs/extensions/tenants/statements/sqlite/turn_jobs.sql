-- The best available jobs of a tenant and priority in a queue: `number` after the first `skip`. The
-- index is named, because without ANALYZE the planner takes the index of claims.
SELECT id, priority, {tenant}, enqueued_at, coalesce(size_bytes, 0), hold
FROM ojs_job INDEXED BY ojs_job_tenant_turn
WHERE queue = %(queue)s AND state {before_fetch} AND hold < 64 AND {marked} {{isolation}}
  AND priority = %(priority)s AND {tenant} = %(tenant)s
  AND (expires_at IS NULL OR expires_at > {now}){{condition}}
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                            AND paused_at IS NOT NULL)
ORDER BY priority DESC, {tenant}, enqueued_at, id LIMIT %(number)s OFFSET %(skip)s
