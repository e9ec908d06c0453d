-- Whether VACUUM of the table is permitted; without the permission it writes a warning to the log of
-- the server each time.
SELECT CASE WHEN current_setting('server_version_num')::integer >= 170000
            THEN has_table_privilege(oid, 'MAINTAIN')
            ELSE pg_has_role(relowner, 'USAGE') END
FROM pg_class WHERE oid = 'ojs_count_change'::regclass
