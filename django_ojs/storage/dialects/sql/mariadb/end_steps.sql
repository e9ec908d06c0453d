-- Ends steps of workflows, which the caller has locked, as their jobs ended.
--
-- A job may have been retried since, or deleted: its state is the one that was given, and
-- it has a result if it was completed then.
UPDATE ({rows}) AS e STRAIGHT_JOIN ojs_workflow_step AS s FORCE INDEX (PRIMARY) ON s.id = e.id
LEFT JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = e.id
SET s.state = e.state, s.started_at = j.started_at,
    s.finished_at = coalesce(j.finished_at, {{now}}), s.error = j.error,
    s.result = CASE WHEN e.state = '{{completed}}' AND char_length(j.result) <= {{most}}
               THEN j.result END,
    s.result_size = CASE WHEN e.state = '{{completed}}' THEN char_length(j.result) END
