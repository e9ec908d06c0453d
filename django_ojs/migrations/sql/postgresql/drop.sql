-- The reverse of the other files: Django drops the tables of the models itself.

DROP PROCEDURE IF EXISTS ojs_push_unique;

DROP PROCEDURE IF EXISTS ojs_push_many;

DROP PROCEDURE IF EXISTS ojs_push;

DROP FUNCTION IF EXISTS ojs_admit_all;

DROP FUNCTION IF EXISTS ojs_admit;

DROP FUNCTION IF EXISTS ojs_spend;

DO $$
BEGIN
    FOR slot IN 0..15 LOOP
        EXECUTE format('DROP SEQUENCE IF EXISTS ojs_ticket_%s', slot);
    END LOOP;
END $$;

DROP FUNCTION IF EXISTS ojs_job_count_insert CASCADE;

DROP FUNCTION IF EXISTS ojs_job_count_update CASCADE;

DROP FUNCTION IF EXISTS ojs_job_count_delete CASCADE;

DROP FUNCTION IF EXISTS ojs_job_count_truncate CASCADE;

DROP TABLE ojs_count_change;

DROP TABLE ojs_count;

DROP FUNCTION IF EXISTS ojs_count_leave_out;

DROP FUNCTION IF EXISTS ojs_count_change_leave_out;

DROP FUNCTION IF EXISTS ojs_job_is_valid CASCADE;
