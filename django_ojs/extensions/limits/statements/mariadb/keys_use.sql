-- The columns of `KeyRow`: how much of its limits a key uses, exact while the key is locked. Times
-- are in milliseconds.
SELECT wanted.limit_key,
       (SELECT count(*) FROM ojs_job WHERE state {before_ack} AND limit_key = wanted.limit_key),
       known.starts,
       CASE WHEN known.override_until IS NULL OR known.override_until > {now} THEN known.override END,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', known.paused_until) DIV 1000,
       known.limited_by,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', known.eased_at) DIV 1000,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', known.rescheduled_until) DIV 1000,
       known.dropped, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', known.dropped_at) DIV 1000,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now}) DIV 1000
FROM (SELECT %(key)s AS limit_key) AS wanted LEFT JOIN ojs_limit_key AS known ON known.`key` = %(key)s
