-- Locks those of these jobs that are available, and that no other transaction has locked.
SELECT j.id
FROM ({{rows}}) AS wanted STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = wanted.id
WHERE j.state {before_fetch} {{unless}}
FOR UPDATE SKIP LOCKED
