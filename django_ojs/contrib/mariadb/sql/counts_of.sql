-- Counts jobs of some queues by queue and state; as counts.sql.
SELECT queue, state, CAST(sum(n) AS signed) FROM (
    SELECT queue, state, n FROM ojs_count WHERE queue IN %(queues)s
    UNION ALL SELECT queue, state, n FROM ojs_count_change WHERE queue IN %(queues)s
) AS counted
GROUP BY queue, state ORDER BY queue, state
