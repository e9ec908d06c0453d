-- The `expires_at` of a job that starts. The first start ends its `enqueue_ttl`; what remains is
-- its own `expires_at` or `total_timeout`.
CASE WHEN expires_at IS NULL OR options ->> '$.enqueue_ttl' IS NULL THEN expires_at
     ELSE nullif(min(coalesce(strftime('%%Y-%%m-%%d %%H:%%M:%%f', options ->> '$.expires_at'), '9999'),
                     coalesce(strftime('%%Y-%%m-%%d %%H:%%M:%%f', created_at,
                              '+' || (options ->> '$.total_timeout') || ' seconds'), '9999')), '9999') END
