-- What Django leaves out on MariaDB: see contrib/mariadb.

ALTER TABLE ojs_limited_queue CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

ALTER TABLE ojs_limit_key CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_limit_key_expires (expires_at),
    ADD INDEX IF NOT EXISTS ojs_limit_key_by (limited_by),
    ADD INDEX IF NOT EXISTS ojs_limit_key_dropped (dropped_at);

ALTER TABLE ojs_limit_check CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_limit_check_due (due_at, limit_key),
    ADD INDEX IF NOT EXISTS ojs_limit_check_key (limit_key, due_at);
