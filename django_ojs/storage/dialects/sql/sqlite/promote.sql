-- Makes due jobs, given in their order, available.
--
-- `now` has milliseconds; three more digits keep the order in which the jobs were due. RETURNING
-- has the new values only, so their former states are read before.
UPDATE ojs_job SET state = {after_timer}, enqueued_at = %(now)s || printf('%%03d', due.key + 1)
FROM json_each(%(keys)s) AS due
WHERE ojs_job.id = due.value AND state {before_timer} AND due_at <= {now}
RETURNING ojs_job.id, ojs_job.queue
