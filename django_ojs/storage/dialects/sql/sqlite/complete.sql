-- ACK: completes many jobs of one worker, as far as it still holds them.
--
-- `run` is the fence: a job that was taken back and claimed again has a higher one.
UPDATE ojs_job
SET state = {after_ack}, finished_at = {now}, error = NULL, lease_until = NULL,
    result = CASE WHEN json_type(r.value, '$.result') = 'null' THEN NULL
                  ELSE r.value -> 'result' END
FROM json_each(%(finished)s) AS r
WHERE ojs_job.id = replace(r.value ->> 'id', '-', '') AND ojs_job.run = r.value ->> 'run'
  AND ojs_job.worker_id = %(worker_id)s AND ojs_job.state {before_ack}
RETURNING id
