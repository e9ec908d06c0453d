-- Locks these jobs, if they are still due and no other transaction has locked them.
SELECT j.id, j.queue, j.state, j.due_at
FROM ({{rows}}) AS wanted STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = wanted.id
WHERE j.state {before_timer} AND j.due_at <= {now}
FOR UPDATE SKIP LOCKED
