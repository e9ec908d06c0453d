-- Makes due jobs of these queues available, the earliest of each queue.
--
-- As in promote.sql, except that no queue gets more than its share, however many are due in it.
WITH due AS MATERIALIZED (
    SELECT j.id, j.due_at, j.state FROM unnest(%(queues)s::text[]) AS wanted (queue) CROSS JOIN LATERAL (
        SELECT id, due_at, state FROM ojs_job
        WHERE queue = wanted.queue AND state {before_timer} AND due_at <= statement_timestamp()
          AND NOT EXISTS (SELECT 1 FROM ojs_queue
                          WHERE name = {all_queues} AND paused_at IS NOT NULL)
        ORDER BY due_at, id LIMIT %(each)s FOR UPDATE SKIP LOCKED
    ) AS j
), ordered AS (SELECT id, state, row_number() OVER (ORDER BY due_at, id) AS n FROM due)
UPDATE ojs_job AS j
SET state = {after_timer},
    enqueued_at = statement_timestamp() + ordered.n * interval '1 microsecond'
FROM ordered WHERE j.id = ordered.id
RETURNING j.id, j.queue, ordered.state
