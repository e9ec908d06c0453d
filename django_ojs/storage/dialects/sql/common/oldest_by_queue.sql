-- Since when the available job of each queue that has waited longest waits.
--
-- The claim index has the oldest job of each hold and priority first. So each queue, hold and priority
-- costs one step in the index, however many jobs wait. {names} is one row of VALUES a queue.
WITH RECURSIVE level (queue, hold, priority) AS (
    SELECT wanted.column1, hold, (SELECT max(priority) FROM ojs_job
                                  WHERE queue = wanted.column1 AND state {before_fetch}
                                    AND limit_hold = hold)
    FROM (VALUES {names}) AS wanted
    LEFT JOIN ojs_queue ON ojs_queue.name = wanted.column1
    CROSS JOIN (SELECT 0 AS hold UNION ALL SELECT 1 UNION ALL SELECT 2) AS holds
    WHERE hold = 0 OR rules <> 0
    UNION ALL
    SELECT level.queue, level.hold, (SELECT max(job.priority) FROM ojs_job AS job
                                     WHERE job.queue = level.queue AND job.state {before_fetch}
                                       AND job.limit_hold = level.hold
                                       AND job.priority < level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT level.queue, min((SELECT min(job.enqueued_at) FROM ojs_job AS job
                         WHERE job.queue = level.queue AND job.state {before_fetch}
                           AND job.limit_hold = level.hold AND job.priority = level.priority))
FROM level WHERE level.priority IS NOT NULL GROUP BY level.queue
