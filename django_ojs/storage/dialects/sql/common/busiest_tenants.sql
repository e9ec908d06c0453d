-- The tenants of a queue with the most waiting jobs.
SELECT tenant_id, count(*) FROM ojs_job
WHERE queue = %(queue)s AND tenant_id IS NOT NULL AND state {is_waiting}
GROUP BY tenant_id ORDER BY 2 DESC, tenant_id LIMIT %(limit)s
