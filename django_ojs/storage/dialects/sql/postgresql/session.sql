-- The server process of this connection, and when it started: NULL after a SET ROLE to a role that
-- may not see it.
SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
