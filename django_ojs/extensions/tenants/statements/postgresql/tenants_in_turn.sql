-- The tenants with available jobs in a queue, in the order of their turns: the highest priority first; in
-- each priority the tenants after its member of `starts`, then the others. A paused queue has none.
--
-- A loose index scan: finding the next tenant is a step in the index, however many jobs a tenant has.
-- A row without `is_tenant` begins a priority, or the second part of one. The table of jobs occurs
-- only twice, because the planner considers all of its indexes each time, which takes longer than reading.
WITH RECURSIVE turns (priority, tenant, start, is_wrapped, is_tenant) AS (
    SELECT 32767::smallint, NULL::text, '', false, false
    WHERE NOT EXISTS (SELECT 1 FROM ojs_queue
                      WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                        AND paused_at IS NOT NULL)
    UNION ALL
    SELECT following.* FROM turns AS t CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT t.priority, tenant, t.start, t.is_wrapped, true FROM (
                SELECT {tenant} AS tenant FROM ojs_job AS j
                WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold < 64 AND {marked}
                  AND j.priority = t.priority AND {tenant} > t.tenant
                ORDER BY j.priority DESC, {tenant}, j.enqueued_at, j.id LIMIT 1
            ) AS same WHERE NOT t.is_wrapped OR tenant <= t.start
            UNION ALL
            SELECT t.priority, '', t.start, true, false WHERE NOT t.is_wrapped AND t.start <> ''
            UNION ALL
            SELECT priority, start, start, false, false FROM (
                SELECT j.priority, coalesce(%(starts)s::jsonb ->> j.priority::text, '') AS start
                FROM ojs_job AS j
                WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold < 64 AND {marked}
                  AND j.priority < t.priority
                ORDER BY j.priority DESC, {tenant}, j.enqueued_at, j.id LIMIT 1
            ) AS lower
        ) AS ways LIMIT 1
    ) AS following
)
SELECT priority, tenant FROM turns WHERE is_tenant LIMIT %(limit)s
