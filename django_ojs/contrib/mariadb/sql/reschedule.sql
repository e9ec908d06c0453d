-- Gives jobs, which the caller has locked, the times at which they become due.
UPDATE ({{rows}}) AS r STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = r.id
SET j.state = {after_reschedule}, j.due_at = r.due_at
WHERE j.state {before_reschedule}
