-- Locks the available jobs of a queue that have waited longest.
--
-- The claim index is by priority first. So the oldest of each priority are read, and the oldest of
-- those are returned: there are few priorities, and finding the next one is a step in the index.
WITH RECURSIVE priorities (priority) AS (
    (SELECT priority FROM ojs_job WHERE queue = %(queue)s AND state {before_fetch}
     ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT j.priority FROM ojs_job AS j
            WHERE queue = %(queue)s AND state {before_fetch} AND j.priority < p.priority
            ORDER BY j.priority DESC LIMIT 1)
    FROM priorities AS p WHERE p.priority IS NOT NULL
)
SELECT j.id FROM priorities AS p CROSS JOIN LATERAL (
    SELECT id, enqueued_at FROM ojs_job
    WHERE queue = %(queue)s AND state {before_fetch} AND priority = p.priority
    ORDER BY enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS j
ORDER BY j.enqueued_at, j.id LIMIT %(limit)s
