-- The first tenant after another one, and not after `last`, that has available jobs of a priority.
SELECT {tenant} FROM ojs_job FORCE INDEX (ojs_job_tenant_turn)
WHERE queue = %(queue)s AND state {before_fetch} AND hold < 64 AND {marked}
  AND priority = %(priority)s AND {tenant} > %(after)s AND {tenant} <= %(last)s
ORDER BY {tenant} LIMIT 1
