-- The queue, if a claim would find no job in it: its available jobs are all held, and no key has to be
-- checked.
SELECT %(key)s FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM ojs_job
                  WHERE queue = %(key)s AND state {before_fetch} AND hold = 0)
  AND NOT EXISTS (SELECT 1 FROM ojs_job
                  WHERE queue = %(key)s AND state {before_fetch} AND hold > 0 AND hold < 64)
  AND NOT EXISTS (SELECT 1 FROM ojs_limit_check WHERE due_at <= {now})
