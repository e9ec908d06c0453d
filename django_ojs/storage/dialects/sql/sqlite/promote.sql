-- Makes due jobs available, which are given in their order.
--
-- `now` has three digits; the last three of the time order the jobs as they were due. What an UPDATE
-- returns is of the row as it is then, so their states are read before.
UPDATE ojs_job SET state = {after_timer}, enqueued_at = %(now)s || printf('%%03d', due.key + 1)
FROM json_each(%(keys)s) AS due
WHERE ojs_job.id = due.value AND state {before_timer} AND due_at <= {now}
RETURNING ojs_job.id, ojs_job.queue
