-- The reverse of the other files: Django drops the tables of the models itself, with their indexes.

DROP TRIGGER ojs_job_count_insert;

DROP TRIGGER ojs_job_count_update;

DROP TRIGGER ojs_job_count_delete;

DROP TABLE ojs_count_change;

DROP TABLE ojs_count;

DROP TABLE ojs_lock;
