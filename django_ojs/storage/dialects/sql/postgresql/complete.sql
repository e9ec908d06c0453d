-- ACK: completes many jobs of one worker, as far as it still holds them.
--
-- `run` is the fence: a job that was taken back and claimed again has a higher one.
--
-- IS TRUE keeps the planner from the index of active jobs. While an old snapshot is open, that index
-- holds an entry for each job that the worker has completed, and all of them would be read.
UPDATE ojs_job AS j
SET state = {after_ack}, finished_at = statement_timestamp(), result = r.result, error = NULL,
    lease_until = NULL
FROM json_to_recordset(%(finished)s::json) AS r (id uuid, run integer, result jsonb)
WHERE j.id = r.id AND j.run = r.run
  AND (j.worker_id = %(worker_id)s AND j.state {before_ack}) IS TRUE
RETURNING j.id
