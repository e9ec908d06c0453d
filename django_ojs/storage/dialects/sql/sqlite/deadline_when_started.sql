-- The `expires_at` of a job that starts: no longer the end of its `enqueue_ttl`, which its first start
-- ends, but what else the job was sent with.
CASE WHEN expires_at IS NULL OR options ->> '$.enqueue_ttl' IS NULL THEN expires_at
     ELSE nullif(min(coalesce(strftime('%%Y-%%m-%%d %%H:%%M:%%f', options ->> '$.expires_at'), '9999'),
                     coalesce(strftime('%%Y-%%m-%%d %%H:%%M:%%f', created_at,
                              '+' || (options ->> '$.total_timeout') || ' seconds'), '9999')), '9999') END
