-- Which server and database the session is on, whether it replays the WAL of another one, whether it
-- has replayed it up to a position, and when the last transaction that it has replayed was committed.
SELECT (SELECT system_identifier FROM pg_control_system()), current_database(), pg_postmaster_start_time(),
       pg_is_in_recovery(), coalesce(pg_last_wal_replay_lsn() >= %s::pg_lsn, false),
       pg_last_xact_replay_timestamp()
