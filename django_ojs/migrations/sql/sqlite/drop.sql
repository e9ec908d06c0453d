-- The reverse of count_triggers.sql.

DROP TRIGGER ojs_job_count_insert;

DROP TRIGGER ojs_job_count_update;

DROP TRIGGER ojs_job_count_delete;

DROP TABLE ojs_count;
