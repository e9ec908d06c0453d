-- Compares the counts with the jobs, both under one snapshot. It reads every job.
SELECT queue, state, CAST(sum(counted) AS signed), CAST(sum(actual) AS signed),
       CAST(sum(counted_bytes) AS signed), CAST(sum(bytes) AS signed)
FROM (
    SELECT queue, state, n AS counted, 0 AS actual, bytes AS counted_bytes, 0 AS bytes FROM ojs_count
    UNION ALL SELECT queue, state, n, 0, bytes, 0 FROM ojs_count_change
    UNION ALL
    SELECT queue, if(dead_letter, 'dead_letter', state), 0, count(*), 0,
           coalesce(sum(size_bytes), 0)
    FROM ojs_job GROUP BY queue, if(dead_letter, 'dead_letter', state)
) AS both_sides
GROUP BY queue, state
HAVING sum(counted) <> sum(actual) OR sum(counted_bytes) <> sum(bytes)
ORDER BY queue, state
