-- The triggers of django_ojs, and its indexes on jobs.
SELECT 'TRIGGER', trigger_name, event_object_table FROM information_schema.triggers
WHERE trigger_schema = DATABASE() AND trigger_name LIKE 'ojs\_%'
UNION
SELECT 'INDEX', index_name, table_name FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name = 'ojs_job' AND index_name LIKE 'ojs\_%'
