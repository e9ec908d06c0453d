-- Stores how far workflows are, given as one JSON array of their new values.
--
-- A workflow started when its first step did. The steps are read until a start is known.
UPDATE ojs_workflow AS w
SET steps_left = v.steps_left, has_failed = v.has_failed,
    jobs_completed = v.jobs_completed, jobs_failed = v.jobs_failed, state = v.state,
    started_at = coalesce(w.started_at, (
        SELECT min(s.started_at) FROM ojs_workflow_step AS s WHERE s.workflow_id = w.id)),
    finished_at = CASE WHEN v.state <> %(running)s THEN statement_timestamp() END
FROM json_to_recordset(%(workflows)s::json) AS v (
    id uuid, steps_left integer, has_failed boolean, jobs_completed integer, jobs_failed integer,
    state text)
WHERE w.id = v.id
RETURNING w.id, w.started_at, w.finished_at
