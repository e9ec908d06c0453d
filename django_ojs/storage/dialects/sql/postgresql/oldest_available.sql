-- Locks the available jobs of a queue that have waited longest.
--
-- The claim index is by hold and priority first. So the oldest of each priority are read, and the
-- oldest of those are returned: there are few priorities, and finding the next one is a step in the
-- index.
WITH RECURSIVE priorities (hold, priority) AS (
    SELECT hold, (SELECT max(priority) FROM ojs_job
                  WHERE queue = %(queue)s AND state {before_fetch} AND limit_hold = hold)
    FROM (VALUES (0), (1), (2)) AS holds (hold)
    UNION ALL
    SELECT hold, (SELECT max(j.priority) FROM ojs_job AS j
                  WHERE queue = %(queue)s AND state {before_fetch} AND j.limit_hold = p.hold
                    AND j.priority < p.priority)
    FROM priorities AS p WHERE p.priority IS NOT NULL
)
SELECT j.id FROM priorities AS p CROSS JOIN LATERAL (
    SELECT id, enqueued_at FROM ojs_job
    WHERE queue = %(queue)s AND state {before_fetch} AND limit_hold = p.hold AND priority = p.priority
    ORDER BY enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS j
ORDER BY j.enqueued_at, j.id LIMIT %(limit)s
