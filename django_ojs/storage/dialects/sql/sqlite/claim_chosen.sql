-- FETCH of jobs that were chosen by this transaction: makes them active, as claim.sql does.
UPDATE ojs_job
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = {now}, expires_at = {deadline_when_started},
    lease_ms = max(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s),
    lease_until = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', printf('+%%.3f seconds', (
        max(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s)) / 1000.0))
WHERE id IN (SELECT value FROM json_each(%(keys)s)) AND state {before_fetch} {{registered}}
  AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {default_policy})
                                            AND rules & ~%(applied)s)
RETURNING {claimed_columns}
