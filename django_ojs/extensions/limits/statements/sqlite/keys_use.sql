-- The columns of `KeyRow`: how much of its limits each key uses, exact for the holder of the write lock.
-- Times are in milliseconds.
SELECT wanted.value,
       (SELECT count(*) FROM ojs_job
        WHERE state {before_ack} AND options ->> '$.limit_key' = wanted.value),
       known.starts,
       CASE WHEN known.override_until IS NULL OR known.override_until > {now} THEN known.override END,
       CAST((julianday(known.paused_until) - 2440587.5) * 86400000 AS integer),
       known.limited_by,
       CAST((julianday(known.eased_at) - 2440587.5) * 86400000 AS integer),
       CAST((julianday(known.rescheduled_until) - 2440587.5) * 86400000 AS integer),
       known.dropped, CAST((julianday(known.dropped_at) - 2440587.5) * 86400000 AS integer),
       CAST((julianday('now') - 2440587.5) * 86400000 AS integer)
FROM json_each(%(keys)s) AS wanted LEFT JOIN ojs_limit_key AS known ON known.key = wanted.value
