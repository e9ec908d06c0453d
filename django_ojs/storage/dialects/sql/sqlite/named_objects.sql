-- The triggers of django_ojs, and its indexes on jobs.
SELECT upper(type), name, tbl_name FROM sqlite_master
WHERE name LIKE 'ojs\_%' ESCAPE '\' AND (type = 'trigger' OR type = 'index' AND tbl_name = 'ojs_job')
