-- The `expires_at` of a job that starts. Its first start ends the `enqueue_ttl`, so what counts is the
-- `expires_at` that the job was sent with, and its `total_timeout`.
CASE WHEN expires_at IS NULL OR JSON_VALUE(options, '$.enqueue_ttl') IS NULL THEN expires_at
     ELSE NULLIF(LEAST(
         COALESCE(STR_TO_DATE(JSON_VALUE(options, '$.expires_at'), '%%Y-%%m-%%dT%%H:%%i:%%s.%%fZ'),
                  '9999-12-31'),
         COALESCE(created_at + INTERVAL JSON_VALUE(options, '$.total_timeout') SECOND, '9999-12-31')),
         '9999-12-31') END
