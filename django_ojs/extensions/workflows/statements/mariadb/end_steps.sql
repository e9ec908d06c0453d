-- Gives steps of workflows, which the caller has locked, the outcome of their jobs.
--
-- A job may have been retried or deleted since, so the state of a step is the given one, and
-- only a completed step gets a result.
UPDATE ojs_workflow_step AS s FORCE INDEX (PRIMARY)
LEFT JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = s.id
SET s.state = %(state)s, s.started_at = j.started_at,
    s.finished_at = coalesce(j.finished_at, {now}), s.error = j.error,
    s.result = CASE WHEN %(state)s = %(completed)s AND char_length(j.result) <= %(most)s
               THEN j.result END,
    s.result_size = CASE WHEN %(state)s = %(completed)s THEN octet_length(j.result) END
WHERE s.id IN %(keys)s
