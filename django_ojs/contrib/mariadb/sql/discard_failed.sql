-- FAIL: ends jobs, which the caller has locked, without another attempt.
UPDATE ({{rows}}) AS r STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = r.id
SET j.state = {after_last_fail}, j.finished_at = {now}, j.error = r.error, j.lease_until = NULL,
    j.dead_letter = r.dead_letter, j.discard_reason = r.reason
WHERE j.state {before_fail}
