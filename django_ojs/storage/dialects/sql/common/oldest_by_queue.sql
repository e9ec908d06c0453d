-- When the oldest available job of each queue became available.
--
-- The claim index has the oldest job of each hold and priority first. So each queue, hold and
-- priority costs one step in the index, however many jobs wait. {{names}} is one row of VALUES for
-- each queue.
WITH RECURSIVE holds (queue, hold) AS (
    SELECT wanted.column1, (SELECT min(hold) FROM ojs_job
                            WHERE queue = wanted.column1 AND state {before_fetch})
    FROM (VALUES {{names}}) AS wanted
    UNION ALL
    SELECT holds.queue, (SELECT min(job.hold) FROM ojs_job AS job
                         WHERE job.queue = holds.queue AND job.state {before_fetch}
                           AND job.hold > holds.hold)
    FROM holds WHERE holds.hold IS NOT NULL
), level (queue, hold, priority) AS (
    SELECT holds.queue, holds.hold, (SELECT max(job.priority) FROM ojs_job AS job
                                     WHERE job.queue = holds.queue AND job.state {before_fetch}
                                       AND job.hold = holds.hold)
    FROM holds WHERE holds.hold IS NOT NULL
    UNION ALL
    SELECT level.queue, level.hold, (SELECT max(job.priority) FROM ojs_job AS job
                                     WHERE job.queue = level.queue AND job.state {before_fetch}
                                       AND job.hold = level.hold
                                       AND job.priority < level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT level.queue, min((SELECT min(job.enqueued_at) FROM ojs_job AS job
                         WHERE job.queue = level.queue AND job.state {before_fetch}
                           AND job.hold = level.hold AND job.priority = level.priority))
FROM level WHERE level.priority IS NOT NULL GROUP BY level.queue
