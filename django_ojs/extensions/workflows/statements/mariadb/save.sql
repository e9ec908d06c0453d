-- Stores how far a workflow is.
--
-- A workflow started when its first step did. The steps are read until a start is known.
UPDATE ojs_workflow AS w
SET steps_left = %(steps_left)s, has_failed = %(has_failed)s, jobs_completed = %(jobs_completed)s,
    jobs_failed = %(jobs_failed)s, state = %(state)s,
    started_at = coalesce(w.started_at, (
        SELECT min(s.started_at) FROM ojs_workflow_step AS s WHERE s.workflow_id = w.id)),
    finished_at = CASE WHEN %(state)s <> %(running)s THEN {now} END
WHERE w.id = %(id)s
