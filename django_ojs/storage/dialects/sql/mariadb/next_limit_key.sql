-- The first limit key after another one: of waiting or active jobs, or of which something is kept.
SELECT min(following) FROM (
    SELECT min(limit_key) AS following FROM ojs_job WHERE state {before_fetch} AND limit_key > %(after)s
    UNION ALL
    SELECT min(limit_key) FROM ojs_job WHERE state {before_ack} AND limit_key > %(after)s
    UNION ALL
    SELECT min(`key`) FROM ojs_limit_key WHERE `key` > %(after)s
) AS found
