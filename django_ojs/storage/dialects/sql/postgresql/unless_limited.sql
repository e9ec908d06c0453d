-- The condition of a claim that has not checked the limits of the queue: it has none of its own.
AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%(queue)s, {default_policy})
                  AND jsonb_exists_any(config, ARRAY['concurrency', 'rate_limit']))
