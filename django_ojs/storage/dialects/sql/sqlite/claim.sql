-- FETCH: makes the best available jobs of a queue active, as many as fit into `max_bytes`.
UPDATE ojs_job
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = {now}, expires_at = {deadline_when_started},
    lease_ms = max(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s),
    lease_until = strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', printf('+%%.3f seconds', (
        max(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s)) / 1000.0))
WHERE id IN (
    SELECT id FROM (
        SELECT best.id, best.size, sum(best.size) OVER (
            ORDER BY best.priority DESC, best.enqueued_at, best.id ROWS UNBOUNDED PRECEDING
        ) AS total
        FROM (
            SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size FROM ojs_job
            WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
              AND (expires_at IS NULL OR expires_at > {now})
              AND NOT EXISTS (SELECT 1 FROM ojs_queue
                              WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                                AND (paused_at IS NOT NULL OR rules & ~%(applied)s))
              AND NOT coalesce((
                  SELECT hold < 64 AND (1 << hold) & ~%(applied)s FROM ojs_job
                  WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 ORDER BY hold LIMIT 1
              ), 0)
            ORDER BY priority DESC, enqueued_at, id LIMIT %(limit)s
        ) AS best
    ) AS sized
    WHERE (total <= %(max_bytes)s OR (%(at_least_one)s AND total = size)) {{registered}})
RETURNING {claimed_columns}
