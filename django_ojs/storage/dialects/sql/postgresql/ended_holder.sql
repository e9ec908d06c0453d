-- The worker that holds a lease, if its database session has ended.
--
-- What a session proves is as in dead_workers.sql. Each worker that waits for the lease asks this.
SELECT w.id FROM ojs_lease AS l JOIN ojs_worker AS w ON w.id = l.holder
WHERE l.name = %(name)s AND w.session_started_at IS NOT NULL
  AND w.seen_at >= statement_timestamp() - %(back_for)s * interval '1 second'
  AND NOT EXISTS (
    SELECT 1 FROM pg_stat_get_activity(w.session_pid::integer) AS a
    WHERE a.pid = w.session_pid
      AND (a.backend_start = w.session_started_at OR a.backend_start IS NULL))
