-- Workers that have sent nothing for too long.
--
-- The time in which the database was away is no silence of a worker that has not sent one since.
SELECT id, NULL, NULL FROM ojs_worker
WHERE seen_at <= {now} - INTERVAL dead_after_ms * 1000 MICROSECOND
      - INTERVAL CASE WHEN seen_at < {now} - INTERVAL %(back_for)s * 1000000 MICROSECOND
                      THEN %(away)s ELSE 0 END * 1000000 MICROSECOND
