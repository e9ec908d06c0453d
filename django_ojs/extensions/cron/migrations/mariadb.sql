-- What Django leaves out on MariaDB: see schema/tables.sql of contrib.mariadb.

ALTER TABLE ojs_cron_job CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_cron_job_due (due_at, name),
    ADD INDEX IF NOT EXISTS ojs_cron_job_code (owner, service);

ALTER TABLE ojs_cron_run CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_cron_run_name (name, id),
    ADD INDEX IF NOT EXISTS ojs_cron_run_open (phase, name, id);
