-- Locks jobs, given with their runs, in the order of their ids, if the worker still holds them and
-- no other session has locked them.
--
-- `run` is the fence, and IS TRUE is needed, as in complete.sql.
SELECT j.id, r.run
FROM json_to_recordset(%(claims)s::json) AS r (id uuid, run integer)
     JOIN ojs_job AS j ON j.id = r.id
WHERE j.run = r.run AND (j.worker_id = %(worker_id)s AND j.state {before_fail}) IS TRUE
ORDER BY j.id
FOR NO KEY UPDATE OF j SKIP LOCKED
