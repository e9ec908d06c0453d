-- The `expires_at` of a job that starts. The first start ends its `enqueue_ttl`; what remains is
-- its own `expires_at` or `total_timeout`.
CASE WHEN expires_at IS NULL OR NOT jsonb_exists(options, 'enqueue_ttl') THEN expires_at
     ELSE LEAST((options ->> 'expires_at')::timestamptz,
                created_at + (options ->> 'total_timeout')::integer * interval '1 second') END
