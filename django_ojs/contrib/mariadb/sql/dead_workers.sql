-- Workers that have sent nothing for too long.
SELECT id, NULL, NULL FROM ojs_worker AS worker
WHERE seen_at <= {now} - INTERVAL dead_after_ms * 1000 MICROSECOND
  AND {{steady}} {{among}}
