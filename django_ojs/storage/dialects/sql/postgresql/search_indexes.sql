-- The indexes of searches in what jobs carry: whether each is built to its end, and its bytes.
SELECT i.relname, x.indisvalid AND x.indisready, pg_relation_size(i.oid)
FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
WHERE x.indrelid = to_regclass('ojs_job') AND i.relname = ANY(%s)
