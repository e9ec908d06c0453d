-- FAIL: lets jobs, which the caller has locked, wait for their next attempts, each for its own time.
UPDATE ({{rows}}) AS r STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = r.id
SET j.state = {after_fail}, j.error = r.error, j.lease_until = NULL, j.worker_id = NULL,
    j.due_at = {now} + INTERVAL r.delay_us MICROSECOND
WHERE j.state {before_fail}
