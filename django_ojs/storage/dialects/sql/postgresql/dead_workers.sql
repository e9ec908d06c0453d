-- Workers that sent nothing for too long, and workers whose database session has ended.
--
-- The view pg_stat_activity calls pg_stat_get_activity, and joins the names of all databases and
-- roles, which would take most of the time of this statement.
--
-- A role that is no member of the session's role, nor of pg_read_all_stats, sees the process id of a
-- worker's session but not when it started. Such a session proves nothing: then only the heartbeats
-- count.
--
-- After the database was away, the session of a worker that has not yet sent a heartbeat proves
-- nothing: it may need some seconds to connect again, to another server after a failover.
--
-- A worker that waits for a lease asks only about its holder, by {{among}}.
SELECT id, NULL, NULL FROM ojs_worker AS worker
WHERE seen_at <= statement_timestamp() - dead_after_ms * interval '1 millisecond'
  AND {{steady}} {{among}}
UNION ALL
SELECT id, session_pid, session_started_at FROM ojs_worker AS w
WHERE session_started_at IS NOT NULL {{among}}
  AND seen_at >= statement_timestamp() - %(back_for)s * interval '1 second'
  AND NOT EXISTS (
    SELECT 1 FROM pg_stat_get_activity(w.session_pid::integer) AS a
    WHERE a.pid = w.session_pid
      AND (a.backend_start = w.session_started_at OR a.backend_start IS NULL))
