-- The best jobs of a queue that has jobs with a limit by key: up to `limit` that are open to all claims,
-- and up to `limited` that are open only to claims with a rule. The write lock is the lock of every key.
SELECT id, priority, enqueued_at, size, hold, limit_key, policy, limit_key IS NOT NULL
FROM (
    SELECT * FROM (
        SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size, hold,
               NULL AS limit_key, NULL AS policy
        FROM ojs_job
        WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
          AND (expires_at IS NULL OR expires_at > {now})
        ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s
    ) AS unlimited
    UNION ALL
    SELECT * FROM (
        SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size, hold,
               options ->> '$.limit_key' AS limit_key, options -> '$.rate_limit' AS policy
        FROM ojs_job
        WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 AND hold < 64 {{isolation}}
          AND (expires_at IS NULL OR expires_at > {now})
        ORDER BY hold, priority DESC, enqueued_at, id LIMIT %(limited)s
    ) AS limited
) AS best
WHERE NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                            AND paused_at IS NOT NULL)
