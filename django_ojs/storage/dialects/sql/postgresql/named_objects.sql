-- The triggers, functions and procedures of django_ojs, and its indexes on jobs; and whether each
-- is a trigger that does not fire in an ordinary session.
SELECT 'TRIGGER', tgname, relname, tgenabled NOT IN ('O', 'A')
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE NOT tgisinternal AND starts_with(tgname, 'ojs_') AND pg_table_is_visible(tgrelid)
UNION ALL
SELECT DISTINCT CASE prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, proname, '', false
FROM pg_proc WHERE starts_with(proname, 'ojs_') AND pg_function_is_visible(oid)
UNION ALL
SELECT 'INDEX', relname, 'ojs_job', false
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = to_regclass('ojs_job') AND starts_with(relname, 'ojs_') AND NOT indisprimary
