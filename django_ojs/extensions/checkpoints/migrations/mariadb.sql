-- What Django leaves out on MariaDB: see schema/tables.sql of contrib.mariadb.

ALTER TABLE ojs_checkpoint CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
