-- Since when the available job of each queue that has waited longest waits.
--
-- The claim index has the oldest job of each priority first. So each queue and priority costs one
-- step in the index, however many jobs wait. {names} is one parameter a queue.
WITH RECURSIVE level (queue, priority) AS (
    SELECT name, (SELECT max(priority) FROM ojs_job
                  WHERE queue = name AND state {before_fetch})
    FROM ojs_queue WHERE name IN ({names})
    UNION ALL
    SELECT level.queue, (SELECT max(job.priority) FROM ojs_job AS job
                         WHERE job.queue = level.queue AND job.state {before_fetch}
                           AND job.priority < level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT level.queue, min((SELECT min(job.enqueued_at) FROM ojs_job AS job
                         WHERE job.queue = level.queue AND job.state {before_fetch}
                           AND job.priority = level.priority))
FROM level WHERE level.priority IS NOT NULL GROUP BY level.queue
