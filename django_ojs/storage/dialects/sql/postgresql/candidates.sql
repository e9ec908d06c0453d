-- The best jobs of a queue that has rules, locked: up to `limit` that are open to all claims, and as many
-- that are open to the claims with a rule.
SELECT id, priority, enqueued_at, size, hold
FROM (
    SELECT * FROM (SELECT * FROM (
        SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size, hold FROM ojs_job
        WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
          AND (expires_at IS NULL OR expires_at > statement_timestamp())
        ORDER BY priority DESC, enqueued_at, id LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS first_ones LIMIT %(limit)s) AS free
    UNION ALL
    SELECT * FROM (SELECT * FROM (
        SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size, hold FROM ojs_job
        WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 AND hold < 64 {{isolation}}
          AND (expires_at IS NULL OR expires_at > statement_timestamp())
        ORDER BY hold, priority DESC, enqueued_at, id LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS first_ones LIMIT %(limit)s) AS ruled
) AS best
WHERE NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                            AND paused_at IS NOT NULL)
