-- Since when the available job of each queue that has waited longest waits.
--
-- The claim index has the oldest job of each hold and priority first; there are few of these. {{names}} is
-- one row of VALUES a queue.
WITH wanted (column1) AS (VALUES {{names}})
SELECT wanted.column1, min(job.enqueued_at)
FROM wanted JOIN ojs_job AS job ON job.queue = wanted.column1
WHERE job.state {before_fetch}
GROUP BY wanted.column1
