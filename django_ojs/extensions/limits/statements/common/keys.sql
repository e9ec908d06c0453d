-- The first limit keys in order: the keys of available and active jobs, and the keys that have a row.
--
-- Each step searches three indexes for the next key, however many jobs a key has.
WITH RECURSIVE found (key, n) AS (
    SELECT '', 0
    UNION ALL
    SELECT (SELECT min(k) FROM (
                SELECT min({limit_key}) AS k FROM ojs_job
                WHERE state {before_fetch} AND {limit_key} > found.key
                UNION ALL
                SELECT min({limit_key}) FROM ojs_job
                WHERE state {before_ack} AND {limit_key} > found.key
                UNION ALL
                SELECT min(key) FROM ojs_limit_key WHERE key > found.key
            ) AS following), n + 1
    FROM found WHERE key IS NOT NULL AND n < %(limit)s
)
SELECT key FROM found WHERE key IS NOT NULL AND n > 0 ORDER BY n
