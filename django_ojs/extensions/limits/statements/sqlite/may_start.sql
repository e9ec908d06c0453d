-- Whether a claim of a queue with limits by key may find a job: one that no claim has found at a limit,
-- or a key whose limits are to check.
SELECT EXISTS (SELECT 1 FROM ojs_job
               WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0)
    OR EXISTS (SELECT 1 FROM ojs_job
               WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 AND hold < 64)
    OR EXISTS (SELECT 1 FROM ojs_limit_check WHERE due_at <= {now})
