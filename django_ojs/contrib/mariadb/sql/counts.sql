-- Counts jobs by queue and state: the folded counts and what changed since.
SELECT queue, state, CAST(sum(n) AS signed) FROM (
    SELECT queue, state, n FROM ojs_count
    UNION ALL SELECT queue, state, n FROM ojs_count_change
) AS counted
GROUP BY queue, state ORDER BY queue, state
