-- The condition of a claim that has not checked the limits of the queue: it has none of its own.
AND NOT EXISTS (SELECT 1 FROM ojs_queue WHERE name IN (%s, {default_policy})
                  AND JSON_CONTAINS_PATH(config, 'one', '$.concurrency', '$.rate_limit'))
