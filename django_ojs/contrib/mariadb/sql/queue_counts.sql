-- Counts the jobs of a queue and their bytes, by state: the folded counts and what changed since.
SELECT state, CAST(sum(n) AS signed), CAST(sum(bytes) AS signed) FROM (
    SELECT state, n, bytes FROM ojs_count WHERE queue = %(queue)s AND state IN %(states)s
    UNION ALL
    SELECT state, n, bytes FROM ojs_count_change WHERE queue = %(queue)s AND state IN %(states)s
) AS counted
GROUP BY state
