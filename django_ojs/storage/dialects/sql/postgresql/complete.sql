-- ACK: completes many jobs of one worker, as far as it still holds them, and no other session has locked
-- their rows.
--
-- It waits for none: a transaction of the site that keeps the lock of one job would hold up the others.
-- So it has no part in a deadlock either.
--
-- `run` is the fence: a job that was taken back and claimed again has a higher one.
--
-- IS TRUE keeps the planner from the index of active jobs. While an old snapshot is open, that index
-- holds an entry for each job that the worker has completed, and all of them would be read.
UPDATE ojs_job AS j
SET state = {after_ack}, finished_at = statement_timestamp(), result = held.result, error = NULL,
    lease_until = NULL
FROM (
    SELECT c.id, r.result
    FROM json_to_recordset(%(finished)s::json) AS r (id uuid, run integer, result jsonb)
         JOIN ojs_job AS c ON c.id = r.id
    WHERE c.run = r.run AND (c.worker_id = %(worker_id)s AND c.state {before_ack}) IS TRUE
    FOR NO KEY UPDATE OF c SKIP LOCKED
) AS held
WHERE j.id = held.id
RETURNING j.id
