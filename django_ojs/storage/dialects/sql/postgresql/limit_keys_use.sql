-- How much of their limits keys use, for the holder of their locks: the active jobs, the starts, until
-- when they are paused, and the time, in milliseconds.
SELECT wanted.key, (SELECT count(*) FROM ojs_job WHERE state {before_ack} AND limit_key = wanted.key),
       known.starts::text,
       (EXTRACT(EPOCH FROM known.paused_until) * 1000)::bigint,
       (EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::bigint
FROM unnest(%(keys)s::text[]) AS wanted (key) LEFT JOIN ojs_limit_key AS known USING (key)
