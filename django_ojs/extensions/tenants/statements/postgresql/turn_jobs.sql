-- The best available jobs of tenants of a queue, locked: of each tenant and priority `number` after the
-- first `skip`, and `limit` in all.
--
-- The rows are those of the given tenants in the given order, and no more are locked than are returned.
SELECT id, priority, tenant, enqueued_at, size, hold FROM (
    SELECT job.* FROM unnest(
        %(priorities)s::smallint[], %(tenants)s::text[], %(skip)s::integer[], %(numbers)s::integer[]
    ) AS turn (priority, tenant, skip, number)
    CROSS JOIN LATERAL (
        SELECT j.id, j.priority, turn.tenant, j.enqueued_at, coalesce(j.size_bytes, 0) AS size, j.hold
        FROM ojs_job AS j
        WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold < 64 AND {marked} {{isolation}}
          AND j.priority = turn.priority AND {tenant} = turn.tenant
          AND (j.expires_at IS NULL OR j.expires_at > statement_timestamp()){{condition}}
        ORDER BY j.enqueued_at, j.id
        OFFSET turn.skip LIMIT turn.number FOR UPDATE SKIP LOCKED
    ) AS job
    WHERE NOT EXISTS (SELECT 1 FROM ojs_queue
                      WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                        AND paused_at IS NOT NULL)
    LIMIT %(limit)s
) AS found
