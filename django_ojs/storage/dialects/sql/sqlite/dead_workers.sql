-- Workers that have sent nothing for too long.
SELECT id, NULL, NULL FROM ojs_worker AS worker
WHERE strftime('%%Y-%%m-%%d %%H:%%M:%%f', seen_at,
               printf('+%%.3f seconds', dead_after_ms / 1000.0)) <= {now}
  AND {{steady}} {{among}}
