-- Workers that have sent nothing for too long.
--
-- The time in which the database was away is no silence of a worker that has not sent one since.
SELECT id, NULL, NULL FROM ojs_worker
WHERE strftime('%%Y-%%m-%%d %%H:%%M:%%f', seen_at,
               printf('+%%.3f seconds', dead_after_ms / 1000.0
                      + CASE WHEN (julianday({now}) - julianday(seen_at)) * 86400 > %(back_for)s
                             THEN %(away)s ELSE 0 END)) <= {now}
