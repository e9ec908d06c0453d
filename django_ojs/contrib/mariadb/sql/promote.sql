-- Makes jobs available that the caller has locked; each is enqueued a microsecond after the one before,
-- so that workers get them in the order in which they were due.
UPDATE ({{rows}}) AS due STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = due.id
SET j.state = {after_timer}, j.enqueued_at = {now} + INTERVAL due.n MICROSECOND
WHERE j.state {before_timer}
