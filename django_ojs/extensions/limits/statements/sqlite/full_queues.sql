-- Those of these queues with limits by key in which a claim finds no job: each was found at a limit by
-- another claim, and no key's limits are to check.
SELECT wanted.value FROM json_each(%(keys)s) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM ojs_job
                  WHERE queue = wanted.value AND state {before_fetch} AND hold = 0)
  AND NOT EXISTS (SELECT 1 FROM ojs_job
                  WHERE queue = wanted.value AND state {before_fetch} AND hold > 0 AND hold < 64)
  AND NOT EXISTS (SELECT 1 FROM ojs_limit_check WHERE due_at <= {now})
