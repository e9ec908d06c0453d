-- Indexes that a failed CREATE INDEX CONCURRENTLY left behind, without those that are being built now.
SELECT i.relname FROM pg_index AS x
JOIN pg_class AS i ON i.oid = x.indexrelid
JOIN pg_class AS t ON t.oid = x.indrelid
WHERE NOT (x.indisvalid AND x.indisready)
  AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index AS p WHERE p.index_relid = i.oid)
  AND starts_with(t.relname, 'ojs_') AND pg_table_is_visible(t.oid)
ORDER BY i.relname
