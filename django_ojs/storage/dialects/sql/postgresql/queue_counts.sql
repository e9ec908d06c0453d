-- Counts the jobs of a queue and their bytes, by state: the folded counts and what changed since.
SELECT state, sum(n)::bigint, sum(bytes)::bigint FROM (
    SELECT state, n, bytes FROM ojs_count WHERE queue = %(queue)s AND state = ANY(%(states)s)
    UNION ALL
    SELECT state, n, bytes FROM ojs_count_change
    WHERE queue = %(queue)s AND state = ANY(%(states)s)
) AS counted
GROUP BY state
