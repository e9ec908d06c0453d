-- Locks those of these jobs that are held.
SELECT j.id, {rate_limit}
FROM ({rows}) AS wanted STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = wanted.id
WHERE j.state {before_fetch} AND j.hold = 78
FOR UPDATE SKIP LOCKED
