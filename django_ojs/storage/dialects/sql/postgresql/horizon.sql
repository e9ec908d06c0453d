-- What keeps VACUUM from removing rows of this database: kind, name, detail, age, transactions,
-- whether it is in use, and the bytes of WAL that it keeps.
--
-- The first part leaves out VACUUM itself, which holds nothing back, and walsenders, which the last
-- two parts have.
-- The age of a session of another user is visible to members of pg_read_all_stats only.
SELECT * FROM (
    SELECT 'transaction', pid::text,
           concat_ws(', ', usename, nullif(application_name, ''), state), clock_timestamp() - xact_start,
           age(coalesce(backend_xmin, backend_xid))::bigint, true, NULL::bigint
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type NOT IN ('autovacuum worker', 'walsender')
      AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    UNION ALL
    SELECT 'prepared', gid, owner::text, clock_timestamp() - prepared, age(transaction)::bigint, true,
           NULL
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'slot', slot_name::text, slot_type, NULL, age(coalesce(xmin, catalog_xmin))::bigint, active,
           pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                                ELSE pg_current_wal_lsn() END, restart_lsn)::bigint
    FROM pg_replication_slots
    UNION ALL
    SELECT 'replica', application_name, host(client_addr), NULL, age(backend_xmin)::bigint, true, NULL
    FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
) AS holder (kind, name, detail, age, transactions, active, wal_bytes)
ORDER BY age DESC NULLS LAST, transactions DESC NULLS LAST
