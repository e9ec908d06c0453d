-- The triggers on tables of django_ojs, and whether each fires in an ordinary session.
SELECT tgname, relname, tgenabled IN ('O', 'A')
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE NOT tgisinternal AND starts_with(relname, 'ojs_') AND pg_table_is_visible(tgrelid)
