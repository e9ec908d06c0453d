-- The best held jobs of a key and queue with other policies than these, among the best `behind` jobs.
-- They are locked.
SELECT id, policy FROM (
    SELECT id, (options -> 'rate_limit')::text AS policy FROM ojs_job
    WHERE id IN (
        SELECT id FROM (
            SELECT id, priority, enqueued_at, (options -> 'rate_limit')::text AS policy FROM ojs_job
            WHERE options ->> 'limit_key' = %(key)s AND queue = %(queue)s AND state {before_fetch}
              AND hold = 78
            ORDER BY priority DESC, enqueued_at, id LIMIT %(behind)s
        ) AS best
        WHERE policy <> ALL(%(policies)s::text[])
        ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s
    ) AND state {before_fetch} AND hold = 78
    ORDER BY priority DESC, enqueued_at, id FOR UPDATE SKIP LOCKED
) AS held
