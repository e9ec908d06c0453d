-- The tenants with available jobs in a queue, by turns: those of the highest priority first, in each
-- priority from the one after `starts` on, and then from the first one on. None of a paused queue.
--
-- A loose index scan: finding the next tenant is a step in the index, however many jobs a tenant has.
-- A row without `is_tenant` begins a priority.
WITH RECURSIVE turns (priority, tenant_id, start, is_wrapped, is_tenant) AS (
    (SELECT priority, start, start, false, false FROM (
        SELECT j.priority, coalesce(%(starts)s::jsonb ->> j.priority::text, '') AS start
        FROM ojs_job AS j
        WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold < 64
          AND j.tenant_id IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM ojs_queue
                          WHERE name IN (%(queue)s, {all_queues}, {default_policy})
                            AND paused_at IS NOT NULL)
        ORDER BY j.priority DESC, j.tenant_id, j.enqueued_at, j.id LIMIT 1
    ) AS highest)
    UNION ALL
    SELECT following.* FROM turns AS t CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT * FROM (
                SELECT t.priority, j.tenant_id, t.start, false, true FROM ojs_job AS j
                WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold < 64
                  AND j.priority = t.priority AND NOT t.is_wrapped AND j.tenant_id > t.tenant_id
                ORDER BY j.priority DESC, j.tenant_id, j.enqueued_at, j.id LIMIT 1
            ) AS same
            UNION ALL
            SELECT * FROM (
                SELECT t.priority, j.tenant_id, t.start, true, true FROM ojs_job AS j
                WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold < 64
                  AND j.priority = t.priority AND t.is_wrapped
                  AND j.tenant_id > t.tenant_id AND j.tenant_id <= t.start
                ORDER BY j.priority DESC, j.tenant_id, j.enqueued_at, j.id LIMIT 1
            ) AS after_wrapping
            UNION ALL
            SELECT * FROM (
                SELECT t.priority, j.tenant_id, t.start, true, true FROM ojs_job AS j
                WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold < 64
                  AND j.priority = t.priority AND NOT t.is_wrapped AND j.tenant_id <= t.start
                ORDER BY j.priority DESC, j.tenant_id, j.enqueued_at, j.id LIMIT 1
            ) AS wrapped
            UNION ALL
            SELECT priority, start, start, false, false FROM (
                SELECT j.priority, coalesce(%(starts)s::jsonb ->> j.priority::text, '') AS start
                FROM ojs_job AS j
                WHERE j.queue = %(queue)s AND j.state {before_fetch} AND j.hold < 64
                  AND j.tenant_id IS NOT NULL AND j.priority < t.priority
                ORDER BY j.priority DESC, j.tenant_id, j.enqueued_at, j.id LIMIT 1
            ) AS lower
        ) AS ways LIMIT 1
    ) AS following
)
SELECT priority, tenant_id FROM turns WHERE is_tenant LIMIT %(limit)s
