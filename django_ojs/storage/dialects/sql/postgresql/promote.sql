-- Makes due jobs available, earliest first.
--
-- Each is enqueued a microsecond after the one before, so that workers get them in the order in
-- which they were due. Two processes that promote at once skip each other's rows.
WITH due AS MATERIALIZED (
    SELECT id, due_at, state FROM ojs_job
    WHERE state {before_timer} AND due_at <= statement_timestamp()
      AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name = {all_queues} AND paused_at IS NOT NULL)
    ORDER BY due_at, id LIMIT %s FOR UPDATE SKIP LOCKED
), ordered AS (SELECT id, state, row_number() OVER (ORDER BY due_at, id) AS n FROM due)
UPDATE ojs_job AS j
SET state = {after_timer},
    enqueued_at = statement_timestamp() + ordered.n * interval '1 microsecond'
FROM ordered WHERE j.id = ordered.id
RETURNING j.id, j.queue, ordered.state
