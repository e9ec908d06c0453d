-- FETCH: makes jobs active that this transaction has chosen and locked.
UPDATE ojs_job FORCE INDEX (PRIMARY)
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = {now}, expires_at = {deadline_when_started},
    lease_ms = greatest(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s),
    lease_until = {now} + INTERVAL 1000 * (
        greatest(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s)) MICROSECOND
WHERE id IN %(keys)s AND state {before_fetch}
