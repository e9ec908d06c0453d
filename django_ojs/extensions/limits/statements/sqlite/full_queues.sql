-- The queues among these in which a claim would find no job: their available jobs are all held, and no key
-- has to be checked.
SELECT wanted.value FROM json_each(%(keys)s) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM ojs_job
                  WHERE queue = wanted.value AND state {before_fetch} AND hold = 0)
  AND NOT EXISTS (SELECT 1 FROM ojs_job
                  WHERE queue = wanted.value AND state {before_fetch} AND hold > 0 AND hold < 64)
  AND NOT EXISTS (SELECT 1 FROM ojs_limit_check WHERE due_at <= {now})
