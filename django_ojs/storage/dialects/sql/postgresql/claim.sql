-- FETCH: makes the best available jobs of a queue active.
--
-- The inner SELECT runs once, before the UPDATE changes a row, and skips what other workers have
-- locked, so that no two workers claim the same job and none waits for another.
UPDATE ojs_job
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = statement_timestamp(),
    lease_ms = CASE WHEN %(own_lease)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s)
                    ELSE %(lease_ms)s END,
    lease_until = statement_timestamp() + interval '1 millisecond' *
        CASE WHEN %(own_lease)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END
WHERE id = ANY(ARRAY(
    SELECT id FROM ojs_job
    WHERE queue = %(queue)s AND state {before_fetch} {{isolation}}
      AND (expires_at IS NULL OR expires_at > statement_timestamp())
      AND NOT EXISTS (SELECT 1 FROM ojs_queue
                      WHERE name IN (%(queue)s, {all_queues}) AND paused_at IS NOT NULL)
    ORDER BY priority DESC, enqueued_at, id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
))
RETURNING {claimed_columns}
