-- FAIL: lets jobs, which the caller has locked, wait for their next attempts, each with its own delay.
UPDATE ojs_job AS j
SET state = {after_fail}, error = r.error, lease_until = NULL, worker_id = NULL,
    due_at = statement_timestamp() + r.delay_us * interval '1 microsecond'
FROM json_to_recordset(%(ended)s::json) AS r (id uuid, error jsonb, delay_us bigint)
WHERE j.id = r.id AND j.state {before_fail}
