-- What Django leaves out on MariaDB: see schema/tables.sql of contrib.mariadb.

ALTER TABLE ojs_step CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_step_waiting (outcome, `signal`, `key`);

ALTER TABLE ojs_step_signal CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_step_signal_key (name, `key`, id),
    ADD INDEX IF NOT EXISTS ojs_step_signal_age (sent_at);
