-- The triggers on tables of django_ojs. SQLite cannot disable one.
SELECT name, tbl_name, 1 FROM sqlite_master WHERE type = 'trigger'
