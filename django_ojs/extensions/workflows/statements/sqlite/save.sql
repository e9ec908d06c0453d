-- Stores how far workflows are, given as one JSON array of their new values.
--
-- A workflow started when its first step did. The steps are read until a start is known.
UPDATE ojs_workflow
SET steps_left = v.value ->> 'steps_left', has_failed = v.value ->> 'has_failed',
    jobs_completed = v.value ->> 'jobs_completed', jobs_failed = v.value ->> 'jobs_failed',
    state = v.value ->> 'state',
    started_at = coalesce(ojs_workflow.started_at, (
        SELECT min(s.started_at) FROM ojs_workflow_step AS s
        WHERE s.workflow_id = ojs_workflow.id)),
    finished_at = CASE WHEN v.value ->> 'state' <> %(running)s THEN {now} END
FROM json_each(%(workflows)s) AS v
WHERE ojs_workflow.id = replace(v.value ->> 'id', '-', '')
RETURNING id, started_at, finished_at
