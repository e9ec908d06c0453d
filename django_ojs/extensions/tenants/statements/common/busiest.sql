-- The tenants of a queue with the most waiting jobs.
SELECT {tenant}, count(*) FROM ojs_job
WHERE queue = %(queue)s AND {marked} AND state {is_waiting}
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(limit)s
