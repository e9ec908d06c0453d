-- How long the oldest other transaction of this database has been open, and the time now.
--
-- Only transactions that have a snapshot or have written count: these keep VACUUM from removing rows.
SELECT max(clock_timestamp() - xact_start), statement_timestamp() FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
