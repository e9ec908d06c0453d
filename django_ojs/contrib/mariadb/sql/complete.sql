-- ACK: completes jobs that the caller has locked, each with its result.
UPDATE ({{rows}}) AS r STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = r.id
SET j.state = {after_ack}, j.finished_at = {now}, j.result = r.result, j.error = NULL,
    j.lease_until = NULL
WHERE j.state {before_ack}
