-- The highest priority of the available jobs of the tenants of a queue, below a priority;
-- no row where the queue is paused.
SELECT priority FROM ojs_job FORCE INDEX (ojs_job_tenant_turn)
WHERE queue = %(queue)s AND state {before_fetch} AND hold < 64 AND {marked}
  AND priority < %(priority)s
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                            AND paused_at IS NOT NULL)
ORDER BY priority DESC LIMIT 1
