-- The oldest finished jobs of a kind that are past their retention time, locked. A job of a workflow
-- that runs is kept: later jobs may read its result.
SELECT id FROM ojs_job FORCE INDEX (ojs_job_finished)
WHERE state = %(state)s AND dead_letter = %(dead_letter)s
  AND finished_at <= {now} - INTERVAL %(age)s MICROSECOND
  AND (workflow_id IS NULL OR NOT EXISTS (
      SELECT 1 FROM ojs_workflow AS w WHERE w.id = ojs_job.workflow_id AND w.state = 'running'))
ORDER BY finished_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
