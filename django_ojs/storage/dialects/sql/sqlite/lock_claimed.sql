-- Finds jobs, given with their runs, that the worker still holds, under the write lock.
--
-- `run` is the fence, as in complete.sql.
SELECT ojs_job.id, r.value ->> 'run'
FROM json_each(%(claims)s) AS r
     CROSS JOIN ojs_job ON ojs_job.id = replace(r.value ->> 'id', '-', '')
WHERE ojs_job.run = r.value ->> 'run'
  AND ojs_job.worker_id = %(worker_id)s AND ojs_job.state {before_fail}
