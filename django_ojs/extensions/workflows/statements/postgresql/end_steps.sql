-- Gives steps of workflows the outcomes of their jobs, from one JSON array of `{id, state}`.
--
-- A job may have been retried or deleted since, so the state of a step is the given one, and
-- only a completed step gets a result.
UPDATE ojs_workflow_step AS s
SET state = e.state, started_at = j.started_at,
    finished_at = coalesce(j.finished_at, statement_timestamp()), error = j.error,
    result = CASE WHEN e.state = %(completed)s AND length(j.result::text) <= %(most)s
             THEN j.result END,
    result_size = CASE WHEN e.state = %(completed)s THEN octet_length(j.result::text) END
FROM json_to_recordset(%(ended)s::json) AS e (id uuid, state text)
LEFT JOIN ojs_job AS j ON j.id = e.id
WHERE s.id = e.id AND s.state = 'enqueued'
RETURNING s.id
