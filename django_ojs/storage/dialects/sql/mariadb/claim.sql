-- FETCH: makes jobs active that this transaction has chosen and locked.
UPDATE ojs_job FORCE INDEX (PRIMARY)
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = {now},
    lease_ms = CASE WHEN %(own_lease)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s)
                    ELSE %(lease_ms)s END,
    lease_until = {now} + INTERVAL 1000 * (
        CASE WHEN %(own_lease)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END) MICROSECOND
WHERE id IN %(keys)s AND state {before_fetch}
