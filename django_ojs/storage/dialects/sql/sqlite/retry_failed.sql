-- FAIL: lets jobs, under the write lock, wait for their next attempts, each with its own delay.
UPDATE ojs_job
SET state = {after_fail}, error = r.value -> 'error', lease_until = NULL, worker_id = NULL,
    due_at = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now',
                      printf('%%+.3f seconds', (r.value ->> 'delay_us') / 1000000.0))
FROM json_each(%(ended)s) AS r
WHERE ojs_job.id = replace(r.value ->> 'id', '-', '') AND ojs_job.state {before_fail}
