-- The worker that holds a lease, if its database session has ended.
--
-- What a session proves is as in dead_workers.sql. This is asked by each worker that waits for the
-- lease, so it looks for one process and not for those of all workers.
SELECT w.id FROM ojs_lease AS l JOIN ojs_worker AS w ON w.id = l.holder
WHERE l.name = %(name)s AND w.session_started_at IS NOT NULL
  AND (%(away)s = 0 OR w.seen_at >= statement_timestamp() - %(back_for)s * interval '1 second')
  AND NOT EXISTS (
    SELECT 1 FROM pg_stat_get_activity(w.session_pid::int) AS a
    WHERE a.backend_start = w.session_started_at OR a.backend_start IS NULL)
