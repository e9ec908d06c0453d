-- Of each key the waiting jobs, up to a number, and the policy of one of its jobs.
SELECT wanted.key,
       (SELECT count(*) FROM (SELECT 1 FROM ojs_job
                              WHERE limit_key = wanted.key AND state {before_fetch}
                              LIMIT %(most)s) AS waiting),
       COALESCE((SELECT (options -> 'rate_limit')::text FROM ojs_job
                 WHERE limit_key = wanted.key AND state {before_fetch} LIMIT 1),
                (SELECT (options -> 'rate_limit')::text FROM ojs_job
                 WHERE limit_key = wanted.key AND state {before_ack} LIMIT 1))
FROM unnest(%(keys)s::text[]) AS wanted (key)
