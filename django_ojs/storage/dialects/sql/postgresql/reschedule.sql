-- Reschedules jobs, which the caller has locked, each to its own time.
UPDATE ojs_job AS j
SET state = {after_reschedule}, due_at = r.due_at
FROM json_to_recordset(%(jobs)s::json) AS r (id uuid, due_at timestamptz)
WHERE j.id = r.id AND j.state {before_reschedule}
RETURNING j.id
