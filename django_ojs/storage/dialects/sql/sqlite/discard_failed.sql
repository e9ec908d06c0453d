-- FAIL: ends jobs, under the write lock, without another attempt.
UPDATE ojs_job
SET state = {after_last_fail}, finished_at = {now}, error = r.value -> 'error',
    lease_until = NULL, dead_letter = r.value ->> 'dead_letter',
    discard_reason = r.value ->> 'reason'
FROM json_each(%(ended)s) AS r
WHERE ojs_job.id = replace(r.value ->> 'id', '-', '') AND ojs_job.state {before_fail}
