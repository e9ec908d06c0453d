-- The server process of this connection, and when it started.
SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
