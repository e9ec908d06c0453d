-- Stores the starts of a queue with a rate. It is a SELECT, so that a worker's session keeps its plan.
WITH stored AS (
    INSERT INTO ojs_limited_queue (queue, starts) VALUES (%(queue)s, %(starts)s::jsonb)
    ON CONFLICT (queue) DO UPDATE SET starts = excluded.starts
)
SELECT 1
