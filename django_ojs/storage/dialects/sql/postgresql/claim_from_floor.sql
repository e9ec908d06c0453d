-- FETCH, while an old snapshot is open: as claim.sql, but does not start where the queue starts.
--
-- The index entries of claimed jobs cannot be removed then, and the row of each has to be visited.
-- The three ranges are in the order of the claim index: the jobs of higher priorities that became
-- available lately; those of the floor's priority from the floor on; those of lower priorities. Each
-- is read only as far as the ones before it have too few jobs.
UPDATE ojs_job
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = statement_timestamp(),
    lease_ms = CASE WHEN %(own_lease)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s)
                    ELSE %(lease_ms)s END,
    lease_until = statement_timestamp() + interval '1 millisecond' *
        CASE WHEN %(own_lease)s THEN COALESCE(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END
WHERE id = ANY(ARRAY(
    SELECT id FROM (
        SELECT id FROM (
            SELECT id FROM ojs_job
            WHERE queue = %(queue)s AND state {before_fetch} {{isolation}}
              AND priority > %(floor_priority)s AND enqueued_at >= %(floor_since)s
              AND (expires_at IS NULL OR expires_at > statement_timestamp())
            ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
        ) AS higher
        UNION ALL
        SELECT id FROM (
            SELECT id FROM ojs_job
            WHERE queue = %(queue)s AND state {before_fetch} {{isolation}}
              AND priority = %(floor_priority)s AND enqueued_at >= %(floor_enqueued_at)s
              AND (expires_at IS NULL OR expires_at > statement_timestamp())
            ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
        ) AS same
        UNION ALL
        SELECT id FROM (
            SELECT id FROM ojs_job
            WHERE queue = %(queue)s AND state {before_fetch} {{isolation}} AND priority < %(floor_priority)s
              AND (expires_at IS NULL OR expires_at > statement_timestamp())
            ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
        ) AS lower
    ) AS best
    WHERE NOT EXISTS (SELECT 1 FROM ojs_queue
                      WHERE name IN (%(queue)s, {all_queues}) AND paused_at IS NOT NULL)
    LIMIT %(limit)s
))
RETURNING {claimed_columns}
