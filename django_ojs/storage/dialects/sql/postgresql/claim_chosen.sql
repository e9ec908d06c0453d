-- FETCH of jobs that were chosen and locked by this transaction: makes them active, as claim.sql does.
UPDATE ojs_job
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = statement_timestamp(),
    lease_ms = CASE WHEN %(own_lease)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s)
                    ELSE %(lease_ms)s END,
    lease_until = statement_timestamp() + interval '1 millisecond' *
        CASE WHEN %(own_lease)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END
WHERE id = ANY(%(keys)s::uuid[]) AND state {before_fetch}
RETURNING {claimed_columns}
