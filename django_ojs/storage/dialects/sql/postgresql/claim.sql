-- FETCH: makes the best available jobs of a queue active.
--
-- The inner SELECT runs once, before the UPDATE changes a row, and skips what other workers have
-- locked, so that no two workers claim the same job and none waits for another.
--
-- Of the locked jobs it claims the best ones, as many as fit into `max_bytes`; the locks of the
-- others end with the statement's transaction.
--
-- If the queue has rules that the caller does not apply, or a job that is open to claims with such a
-- rule, no job is claimed, and a row of NULLs is returned.
--
-- A kept plan (see kept_plans) is made for any limit. {{first}} and {{end}} then apply the limit to a
-- subquery of at most {{most}} jobs, so that the planner reads the index in its order.
WITH queue AS (
    SELECT coalesce(bool_or(paused_at IS NOT NULL), false) AS is_paused,
           coalesce(bit_or(rules), 0) & ~(%(applied)s) <> 0 OR coalesce((
               SELECT hold < 64 AND (1::bigint << hold) & ~(%(applied)s) <> 0 FROM ojs_job
               WHERE queue = %(queue)s AND state {before_fetch} AND hold > 0 ORDER BY hold LIMIT 1
           ), false) AS has_more_rules
    FROM ojs_queue WHERE name IN (%(queue)s, {all_queues}, {default_policy})
), claimed AS (
UPDATE ojs_job
SET state = {after_fetch}, attempt = attempt + 1, run = run + 1, worker_id = %(worker_id)s,
    started_at = statement_timestamp(), expires_at = {deadline_when_started},
    lease_ms = greatest(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s),
    lease_until = statement_timestamp() + interval '1 millisecond' *
        greatest(CASE WHEN %(own_lease)s THEN coalesce(visibility_timeout_ms, %(lease_ms)s)
             ELSE %(lease_ms)s END, %(shortest_ms)s)
WHERE id = ANY(ARRAY(
    SELECT id FROM (
        SELECT best.id, best.size, sum(best.size) OVER (
            ORDER BY best.priority DESC, best.enqueued_at, best.id ROWS UNBOUNDED PRECEDING
        ) AS total
        FROM ({{first}}
            SELECT id, priority, enqueued_at, coalesce(size_bytes, 0) AS size FROM ojs_job
            WHERE queue = %(queue)s AND state {before_fetch} AND hold = 0 {{isolation}}
              AND (expires_at IS NULL OR expires_at > statement_timestamp())
              AND (SELECT NOT is_paused AND NOT has_more_rules FROM queue)
            ORDER BY priority DESC, enqueued_at, id
            LIMIT {{most}}
            FOR UPDATE SKIP LOCKED
        {{end}}) AS best
    ) AS sized
    WHERE (total <= %(max_bytes)s OR (%(at_least_one)s AND total = size)) {{registered}}
))
RETURNING {claimed_columns}
)
SELECT * FROM claimed
UNION ALL
SELECT {no_job} FROM queue WHERE has_more_rules
