-- ACK: completes those of one worker's jobs that it still holds; or one job, under any claim.
--
-- {{fence}} is the claim. For many jobs it is `run` and the worker: a job that was taken back and
-- claimed again has a higher `run`.
UPDATE ojs_job
SET state = {after_ack}, finished_at = {now}, error = NULL, lease_until = NULL,
    result = its_result
FROM (
    SELECT replace(value ->> 'id', '-', '') AS its_id, value ->> 'run' AS run,
           CASE WHEN json_type(value, '$.result') = 'null' THEN NULL ELSE value -> 'result' END
           AS its_result
    FROM json_each(%(finished)s)
) AS r
WHERE ojs_job.id = its_id AND {{fence}} AND ojs_job.state {before_ack}
RETURNING {{columns}}
