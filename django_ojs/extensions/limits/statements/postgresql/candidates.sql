-- The best jobs of a queue that has jobs with a limit by key, locked: up to `limit` that are open to all
-- claims, and up to `limited` that are open only to claims with a rule and whose key is not in `busy`.
--
-- The last column is NULL for a job without a limit, and otherwise whether this transaction has the
-- lock of the key; the class 20305 separates these locks from the others. A later statement
-- counts how much of its limits a key uses, and must see what was committed before it: a caller's
-- transaction with one snapshot gets no such jobs.
SELECT id, priority, enqueued_at, size, hold, limit_key, policy,
       CASE WHEN limit_key IS NOT NULL
            THEN pg_try_advisory_xact_lock(20305, hashtext(limit_key)) END
FROM (
    SELECT * FROM (SELECT * FROM (
        SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size, hold,
               NULL AS limit_key, NULL AS policy
        FROM ojs_job
        WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
          AND (expires_at IS NULL OR expires_at > statement_timestamp())
        ORDER BY priority DESC, enqueued_at, id LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS first_ones LIMIT %(limit)s) AS unlimited
    UNION ALL
    SELECT * FROM (SELECT * FROM (
        SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size, hold,
               options ->> 'limit_key' AS limit_key, (options -> 'rate_limit')::text AS policy
        FROM ojs_job
        WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 AND hold < 64 {{isolation}}
          AND (expires_at IS NULL OR expires_at > statement_timestamp())
          AND coalesce(options ->> 'limit_key' <> ALL(%(busy)s::text[]), true)
          AND current_setting('transaction_isolation') LIKE 'read %%'
        ORDER BY hold, priority DESC, enqueued_at, id LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS first_ones LIMIT %(limited)s) AS limited
) AS best
WHERE NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                            AND paused_at IS NOT NULL)
