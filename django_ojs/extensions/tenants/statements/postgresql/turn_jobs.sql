-- The best available jobs of some tenants of a queue, locked, in the given order of the tenants.
-- For each tenant and priority it skips `skip` jobs and takes `number`, at most `limit` in all.
--
-- It locks only the rows that it returns, and the skipped ones, which this claim has locked before.
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
