-- What Django leaves out on MariaDB: see schema/tables.sql of contrib.mariadb.

ALTER TABLE ojs_outbox CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_outbox_no_position (position, id),
    ADD INDEX IF NOT EXISTS ojs_outbox_next (state, destination, position),
    ADD INDEX IF NOT EXISTS ojs_outbox_next_of_queue (state, destination, queue, position),
    ADD INDEX IF NOT EXISTS ojs_outbox_sent (state, sent_at),
    ADD INDEX IF NOT EXISTS ojs_outbox_rejected (state, created_at);
