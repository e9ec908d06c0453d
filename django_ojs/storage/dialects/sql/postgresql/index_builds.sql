-- The indexes that are being created now, with how much of the table, or of the entries, is done.
SELECT i.relname, p.phase,
       CASE WHEN p.blocks_total > 0 THEN p.blocks_done::float / p.blocks_total
            WHEN p.tuples_total > 0 THEN p.tuples_done::float / p.tuples_total END
FROM pg_stat_progress_create_index AS p JOIN pg_class AS i ON i.oid = p.index_relid
WHERE p.relid = to_regclass('ojs_job') AND p.datname = current_database()
