-- The triggers on tables of django_ojs. MariaDB cannot disable one.
SELECT trigger_name, event_object_table, 1 FROM information_schema.triggers
WHERE trigger_schema = DATABASE() AND event_object_table LIKE 'ojs\_%'
