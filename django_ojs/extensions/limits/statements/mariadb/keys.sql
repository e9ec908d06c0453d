-- The first limit keys after another one, in order: the keys of available and active jobs, and the keys
-- that have a row. The server ends a recursion after a thousand rows.
WITH RECURSIVE found (k, n) AS (
    SELECT CAST(%(after)s AS char(255)) COLLATE {collation}, 0
    UNION ALL
    SELECT NULLIF(LEAST(
               COALESCE((SELECT limit_key FROM ojs_job FORCE INDEX (ojs_job_limit_waiting)
                         WHERE state {before_fetch} AND limit_key > found.k
                         ORDER BY limit_key LIMIT 1), _utf8mb4 x'F48FBFBF'),
               COALESCE((SELECT limit_key FROM ojs_job FORCE INDEX (ojs_job_limit_waiting)
                         WHERE state {before_ack} AND limit_key > found.k
                         ORDER BY limit_key LIMIT 1), _utf8mb4 x'F48FBFBF'),
               COALESCE((SELECT `key` FROM ojs_limit_key WHERE `key` > found.k
                         ORDER BY `key` LIMIT 1), _utf8mb4 x'F48FBFBF')
           ), _utf8mb4 x'F48FBFBF'), n + 1
    FROM found WHERE k IS NOT NULL AND n < %(number)s
)
SELECT k FROM found WHERE k IS NOT NULL AND n > 0 ORDER BY n
