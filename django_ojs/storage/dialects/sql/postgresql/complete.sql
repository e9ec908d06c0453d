-- ACK: completes those of one worker's jobs that it still holds and that no other session has
-- locked; or one job, under any claim.
--
-- With SKIP LOCKED as {{lock}} it waits for no lock: a transaction of the site that keeps the lock
-- of one job would hold up the others. So it has no part in a deadlock either.
--
-- {{fence}} is the claim. For many jobs it is `run` and the worker: a job that was taken back and
-- claimed again has a higher `run`.
--
-- IS TRUE keeps the planner from the index of active jobs. While an old snapshot is open, that index
-- holds an entry for each job that the worker has completed, and all of them would be read.
UPDATE ojs_job AS j
SET state = {after_ack}, finished_at = statement_timestamp(), result = its_result, error = NULL,
    lease_until = NULL
FROM (
    SELECT ojs_job.id AS its_id, r.result AS its_result
    FROM json_to_recordset(%(finished)s::json) AS r (id uuid, run integer, result jsonb)
         JOIN ojs_job ON ojs_job.id = r.id
    WHERE ({{fence}} AND ojs_job.state {before_ack}) IS TRUE
    FOR NO KEY UPDATE OF ojs_job {{lock}}
) AS held
WHERE j.id = its_id
RETURNING {{columns}}
