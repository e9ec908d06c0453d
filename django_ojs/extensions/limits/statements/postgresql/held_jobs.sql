-- The best held jobs of each of these keys and each queue, locked: jobs of a queue that is paused or has no
-- worker do not keep back the jobs of another queue.
SELECT wanted.key, marked.name, held.id, held.policy
FROM unnest(%(keys)s::text[]) AS wanted (key)
CROSS JOIN (SELECT name FROM ojs_queue WHERE rules & %(rule)s <> 0) AS marked
CROSS JOIN LATERAL (
    SELECT id, priority, enqueued_at, (options -> 'rate_limit')::text AS policy FROM ojs_job
    WHERE options ->> 'limit_key' = wanted.key AND queue = marked.name AND state {before_fetch} AND hold = 78
    ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) AS held
ORDER BY wanted.key, marked.name, held.priority DESC, held.enqueued_at, held.id
