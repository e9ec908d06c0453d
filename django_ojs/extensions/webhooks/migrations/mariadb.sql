-- What Django leaves out on MariaDB: see schema/tables.sql of contrib.mariadb.

ALTER TABLE ojs_webhook CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_webhook_active (active, `cursor`);

ALTER TABLE ojs_webhook_delivery CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_webhook_delivery_time (created_at);
