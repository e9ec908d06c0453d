-- Locks the jobs among these that are held.
SELECT id, JSON_EXTRACT(options, '$.rate_limit')
FROM ojs_job FORCE INDEX (PRIMARY)
WHERE id IN %(ids)s AND state {before_fetch} AND hold = 78
FOR UPDATE SKIP LOCKED
