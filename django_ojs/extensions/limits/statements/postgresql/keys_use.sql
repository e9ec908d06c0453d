-- The columns of `KeyRow`: how much of its limits each key uses, exact while the keys are locked.
-- Times are in milliseconds.
SELECT wanted.key, (SELECT count(*) FROM ojs_job
        WHERE state {before_ack} AND options ->> 'limit_key' = wanted.key),
       known.starts::text,
       CASE WHEN known.override_until IS NULL OR known.override_until > statement_timestamp()
            THEN known.override::text END,
       (EXTRACT(EPOCH FROM known.paused_until) * 1000)::bigint,
       known.limited_by,
       (EXTRACT(EPOCH FROM known.eased_at) * 1000)::bigint,
       (EXTRACT(EPOCH FROM known.rescheduled_until) * 1000)::bigint,
       known.dropped, (EXTRACT(EPOCH FROM known.dropped_at) * 1000)::bigint,
       (EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::bigint
FROM unnest(%(keys)s::text[]) AS wanted (key) LEFT JOIN ojs_limit_key AS known USING (key)
