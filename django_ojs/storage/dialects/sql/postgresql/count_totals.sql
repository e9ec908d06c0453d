-- Counts jobs by state: the folded counts and what changed since.
SELECT state, sum(n)::bigint FROM (
    SELECT queue, state, n FROM ojs_count
    UNION ALL SELECT queue, state, n FROM ojs_count_change
) AS counted
WHERE %(queues)s::text[] IS NULL OR queue = ANY(%(queues)s)
GROUP BY state
