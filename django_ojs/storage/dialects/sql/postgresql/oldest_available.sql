-- Locks the available jobs of a queue that have waited longest.
--
-- The claim index begins with hold and priority. So the oldest jobs of each hold and priority are
-- read, and the oldest of all are returned: there are few holds and priorities, and finding the
-- next one is a step in the index.
WITH RECURSIVE holds (hold) AS (
    SELECT min(hold) FROM ojs_job WHERE queue = %(queue)s AND state {before_fetch}
    UNION ALL
    SELECT (SELECT min(j.hold) FROM ojs_job AS j
            WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold > holds.hold)
    FROM holds WHERE hold IS NOT NULL
), priorities (hold, priority) AS (
    SELECT hold, (SELECT max(j.priority) FROM ojs_job AS j
                  WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold = holds.hold)
    FROM holds WHERE hold IS NOT NULL
    UNION ALL
    SELECT hold, (SELECT max(j.priority) FROM ojs_job AS j
                  WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold = p.hold
                    AND j.priority < p.priority)
    FROM priorities AS p WHERE p.priority IS NOT NULL
)
SELECT j.id FROM priorities AS p CROSS JOIN LATERAL (
    SELECT id, enqueued_at FROM ojs_job
    WHERE queue = %(queue)s AND state {before_fetch} AND hold = p.hold AND priority = p.priority
    ORDER BY enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS j
ORDER BY j.enqueued_at, j.id LIMIT %(limit)s
