-- Compares the counts with the jobs. It reads every job.
WITH actual AS (
    SELECT queue, iif(dead_letter, 'dead_letter', state) AS state,
           count(*) AS n, coalesce(sum(size_bytes), 0) AS bytes
    FROM ojs_job GROUP BY 1, 2
)
SELECT queue, state, COALESCE(counted.n, 0), COALESCE(actual.n, 0),
       COALESCE(counted.bytes, 0), COALESCE(actual.bytes, 0)
FROM (SELECT queue, state FROM ojs_count UNION SELECT queue, state FROM actual) AS both
LEFT JOIN ojs_count AS counted USING (queue, state)
LEFT JOIN actual USING (queue, state)
WHERE COALESCE(counted.n, 0) <> COALESCE(actual.n, 0)
   OR COALESCE(counted.bytes, 0) <> COALESCE(actual.bytes, 0)
ORDER BY queue, state
