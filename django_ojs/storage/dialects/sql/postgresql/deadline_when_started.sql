-- The `expires_at` of a job that starts: no longer the end of its `enqueue_ttl`, which its first start
-- ends, but what else the job was sent with.
CASE WHEN expires_at IS NULL OR NOT jsonb_exists(options, 'enqueue_ttl') THEN expires_at
     ELSE LEAST((options ->> 'expires_at')::timestamptz,
                created_at + (options ->> 'total_timeout')::integer * interval '1 second') END
