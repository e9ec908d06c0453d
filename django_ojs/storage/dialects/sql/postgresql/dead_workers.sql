-- Workers that have sent nothing for too long, and workers whose database session has ended.
SELECT id, NULL, NULL FROM ojs_worker
WHERE seen_at <= statement_timestamp() - dead_after_ms * interval '1 millisecond'
UNION ALL
SELECT id, session_pid, session_started_at FROM ojs_worker AS w
WHERE session_pid IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM pg_stat_activity AS a
    WHERE a.pid = w.session_pid AND a.backend_start = w.session_started_at)
