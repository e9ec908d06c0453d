-- FETCH of jobs that were chosen and locked by this transaction: makes them active, as claim.sql does.
--
-- No partial index covers the condition on the state, on purpose: by old statistics, the planner
-- would take the index of the available jobs for a small one, and read all of it instead of these
-- keys.
UPDATE ojs_job
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = statement_timestamp(), expires_at = {deadline_when_started},
    lease_ms = greatest(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s),
    lease_until = statement_timestamp() + interval '1 millisecond' *
        greatest(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s)
WHERE id = ANY(%(keys)s::uuid[]) AND coalesce(state, '') {before_fetch} {{registered}}
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {default_policy})
                                            AND rules & ~(%(applied)s) <> 0)
RETURNING {claimed_columns}
