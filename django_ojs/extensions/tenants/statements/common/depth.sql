-- Counts the waiting jobs of a tenant in a queue.
SELECT count(*) FROM ojs_job
WHERE queue = %(queue)s AND {tenant} = %(tenant)s AND {marked}
  AND state {is_waiting}
