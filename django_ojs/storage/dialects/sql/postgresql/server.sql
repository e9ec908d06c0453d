-- Which server and database the session is on, and up to where its WAL is stored: the position that
-- a replica which has everything has replayed. By the clock of this server.
SELECT (SELECT system_identifier FROM pg_control_system()), current_database(), pg_postmaster_start_time(),
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text,
       clock_timestamp()
