-- Counts the waiting jobs of a tenant in a queue.
SELECT count(*) FROM ojs_job
WHERE queue = %(queue)s AND tenant_id = %(tenant)s AND state {is_waiting}
