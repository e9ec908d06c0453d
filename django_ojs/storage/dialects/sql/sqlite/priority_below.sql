-- The highest priority of the available jobs of the tenants of a queue, below a priority.
SELECT priority FROM ojs_job
WHERE queue = %(queue)s AND state {before_fetch} AND limit_hold < 2 AND tenant_id IS NOT NULL
  AND priority < %(priority)s
ORDER BY priority DESC LIMIT 1
