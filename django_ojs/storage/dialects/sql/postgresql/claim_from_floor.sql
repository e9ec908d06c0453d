-- FETCH, while an old snapshot is open: like claim.sql, but does not start at the beginning of the
-- queue.
--
-- While it is open, the index entries of claimed jobs cannot be removed, and claim.sql has to visit
-- their rows.
-- The three ranges are in the order of the claim index: jobs of higher priorities that became
-- available lately; jobs of the floor's priority, from the floor on; jobs of lower priorities. Each
-- is read only if those before it have too few jobs.
WITH queue AS (
    SELECT coalesce(bool_or(paused_at IS NOT NULL), false) AS is_paused,
           coalesce(bit_or(rules), 0) & ~(%(applied)s) <> 0 OR coalesce((
               SELECT hold < 64 AND (1::bigint << hold) & ~(%(applied)s) <> 0 FROM ojs_job
               WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 ORDER BY hold LIMIT 1
           ), false) AS has_more_rules
    FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
), claimed AS (
UPDATE ojs_job
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = statement_timestamp(), expires_at = {deadline_when_started},
    lease_ms = greatest(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s),
    lease_until = statement_timestamp() + interval '1 millisecond' *
        greatest(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s)
WHERE id = ANY(ARRAY(
    SELECT id FROM (
        SELECT best.id, best.size, sum(best.size) OVER (
            ORDER BY best.priority DESC, best.enqueued_at, best.id ROWS UNBOUNDED PRECEDING
        ) AS total
        FROM (
            SELECT * FROM (
                SELECT * FROM (
                    SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size FROM ojs_job
                    WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
                      AND priority > %(floor_priority)s AND enqueued_at >= %(floor_since)s
                      AND (expires_at IS NULL OR expires_at > statement_timestamp())
                    ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
                ) AS higher
                UNION ALL
                SELECT * FROM (
                    SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size FROM ojs_job
                    WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
                      AND priority = %(floor_priority)s AND enqueued_at >= %(floor_enqueued_at)s
                      AND (expires_at IS NULL OR expires_at > statement_timestamp())
                    ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
                ) AS same
                UNION ALL
                SELECT * FROM (
                    SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size FROM ojs_job
                    WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
                      AND priority < %(floor_priority)s
                      AND (expires_at IS NULL OR expires_at > statement_timestamp())
                    ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
                ) AS lower
            ) AS ranges
            WHERE (SELECT NOT is_paused AND NOT has_more_rules FROM queue)
            LIMIT %(limit)s
        ) AS best
    ) AS sized
    WHERE (total <= %(max_bytes)s OR (%(at_least_one)s AND total = size)) {{registered}}
))
RETURNING {claimed_columns}
)
SELECT * FROM claimed
UNION ALL
SELECT {no_job} FROM queue WHERE has_more_rules
