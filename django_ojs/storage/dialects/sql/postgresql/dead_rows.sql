-- The rows of each table as the statistics have them, and whether autovacuum works on it.
SELECT s.relname, s.n_live_tup, s.n_dead_tup,
       current_setting('autovacuum')::boolean
       AND coalesce((SELECT option_value::boolean FROM pg_options_to_table(c.reloptions)
                     WHERE option_name = 'autovacuum_enabled'), true)
FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid
WHERE starts_with(s.relname, 'ojs_') AND pg_table_is_visible(s.relid)
ORDER BY s.relname
