-- Gives steps of workflows the outcomes of their jobs, from one JSON array of `{id, state}`.
--
-- A job may have been retried or deleted since, so the state of a step is the given one, and
-- only a completed step gets a result.
UPDATE ojs_workflow_step
SET state = e.value ->> 'state', started_at = j.started_at,
    finished_at = coalesce(j.finished_at, {now}), error = j.error,
    result = CASE WHEN e.value ->> 'state' = %(completed)s AND length(j.result) <= %(most)s
             THEN j.result END,
    result_size = CASE WHEN e.value ->> 'state' = %(completed)s
                  THEN length(CAST(j.result AS BLOB)) END
FROM json_each(%(ended)s) AS e LEFT JOIN ojs_job AS j ON j.id = replace(e.value ->> 'id', '-', '')
WHERE ojs_workflow_step.id = replace(e.value ->> 'id', '-', '')
  AND ojs_workflow_step.state = 'enqueued'
RETURNING id
