-- Reschedules jobs, each to its own time, under the write lock.
UPDATE ojs_job
SET state = {after_reschedule}, due_at = r.value ->> 'due_at'
FROM json_each(%(jobs)s) AS r
WHERE ojs_job.id = r.value ->> 'id' AND ojs_job.state {before_reschedule}
RETURNING ojs_job.id
