-- Compares the counts with the jobs, both under one snapshot. It reads every job.
SELECT queue, state, COALESCE(counted.n, 0)::bigint, COALESCE(actual.n, 0),
       COALESCE(counted.bytes, 0)::bigint, COALESCE(actual.bytes, 0)::bigint
FROM (SELECT queue, state, sum(n) AS n, sum(bytes) AS bytes
      FROM (SELECT queue, state, n, bytes FROM ojs_count
            UNION ALL SELECT queue, state, n, bytes FROM ojs_count_change) AS c
      GROUP BY queue, state) AS counted
FULL JOIN (SELECT queue, CASE WHEN dead_letter THEN 'dead_letter' ELSE state END AS state,
                  count(*) AS n, coalesce(sum(size_bytes), 0) AS bytes
           FROM ojs_job GROUP BY 1, 2) AS actual USING (queue, state)
WHERE (COALESCE(counted.n, 0), COALESCE(counted.bytes, 0))
      <> (COALESCE(actual.n, 0), COALESCE(actual.bytes, 0))
ORDER BY queue, state
