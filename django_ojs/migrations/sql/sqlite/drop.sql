-- The reverse of the other files: Django drops the tables of the models itself.

DROP TRIGGER ojs_job_count_insert;

DROP TRIGGER ojs_job_count_update;

DROP TRIGGER ojs_job_count_delete;

DROP TABLE ojs_count;
