-- A queue with limits by key, if a claim finds no job in it: each was found at a limit by another
-- claim, and no key's limits are to check.
SELECT %(key)s FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM ojs_job
                  WHERE queue = %(key)s AND state {before_fetch} AND hold = 0)
  AND NOT EXISTS (SELECT 1 FROM ojs_job
                  WHERE queue = %(key)s AND state {before_fetch} AND hold > 0 AND hold < 64)
  AND NOT EXISTS (SELECT 1 FROM ojs_limit_check WHERE due_at <= {now})
