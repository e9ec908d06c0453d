-- Locks these jobs, if they are available and no other transaction has locked them.
SELECT j.id
FROM ({{rows}}) AS wanted STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = wanted.id
WHERE j.state {before_fetch} {{unless}}
FOR UPDATE SKIP LOCKED
