-- Of a key the waiting jobs, up to a number, and the policy of one of its jobs.
SELECT %(key)s,
       (SELECT count(*) FROM (SELECT 1 FROM ojs_job
                              WHERE limit_key = %(key)s AND state {before_fetch}
                              LIMIT %(most)s) AS waiting),
       COALESCE((SELECT {rate_limit} FROM ojs_job
                 WHERE limit_key = %(key)s AND state {before_fetch} LIMIT 1),
                (SELECT {rate_limit} FROM ojs_job
                 WHERE limit_key = %(key)s AND state {before_ack} LIMIT 1))
