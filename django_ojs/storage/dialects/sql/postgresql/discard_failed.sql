-- FAIL: ends jobs, which the caller has locked, without another attempt.
UPDATE ojs_job AS j
SET state = {after_last_fail}, finished_at = statement_timestamp(), error = r.error,
    lease_until = NULL, dead_letter = r.dead_letter, discard_reason = r.reason
FROM json_to_recordset(%(ended)s::json)
     AS r (id uuid, error jsonb, dead_letter boolean, reason text)
WHERE j.id = r.id AND j.state {before_fail}
