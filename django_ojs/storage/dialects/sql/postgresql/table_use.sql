-- The rows of each table as the statistics have them, whether autovacuum works on it, its size, and
-- the bytes that its rows need: their mean width, and a header and a pointer for each. Neither the
-- size nor the need includes values out of line (TOAST). The need is NULL for a table that was never
-- analysed.
SELECT s.relname, s.n_live_tup, s.n_dead_tup,
       current_setting('autovacuum')::boolean
       AND coalesce((SELECT option_value::boolean FROM pg_options_to_table(c.reloptions)
                     WHERE option_name = 'autovacuum_enabled'), true),
       pg_relation_size(s.relid),
       ((s.n_live_tup + s.n_dead_tup) * (28 + w.width))::bigint
FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid
CROSS JOIN LATERAL (SELECT sum(avg_width) AS width FROM pg_stats
                    WHERE schemaname = s.schemaname AND tablename = s.relname) AS w
WHERE starts_with(s.relname, 'ojs_') AND pg_table_is_visible(s.relid)
ORDER BY s.relname
