-- The first tenant after another one, and not after `last`, that has available jobs of a priority.
SELECT tenant_id FROM ojs_job
WHERE queue = %(queue)s AND state {before_fetch} AND hold < 64 AND tenant_id IS NOT NULL
  AND priority = %(priority)s AND tenant_id > %(after)s AND tenant_id <= %(last)s
ORDER BY priority DESC, tenant_id LIMIT 1
