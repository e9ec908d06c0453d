-- For each queue, the time since which its oldest available job waits.
--
-- The claim index has the oldest job of each hold and priority first; there are few of these. {{names}} has
-- one row of VALUES for each queue.
WITH wanted (column1) AS (VALUES {{names}})
SELECT wanted.column1, min(job.enqueued_at)
FROM wanted JOIN ojs_job AS job ON job.queue = wanted.column1
WHERE job.state {before_fetch}
GROUP BY wanted.column1
