-- The time, if another transaction has been open for so long that it holds an old snapshot.
SELECT statement_timestamp() WHERE EXISTS (
    SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
      AND xact_start < clock_timestamp() - %s * interval '1 second')
