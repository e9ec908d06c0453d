-- What Django leaves out on MariaDB: indexes of expressions or with conditions. And the collation: names
-- and keys are compared by code points, with trailing spaces, whatever the collation of the database.
--
-- There are no partial indexes, so an index for rows of some states has the state as a column.
--
-- This file is run statement by statement: a blank line ends a statement, and there is none within
-- one. It may be run again: what exists stays.

ALTER TABLE ojs_api_key CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

ALTER TABLE ojs_job CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_job_claim (queue, state, hold, priority DESC, enqueued_at, id),
    ADD INDEX IF NOT EXISTS ojs_job_due (state, due_at, id),
    ADD INDEX IF NOT EXISTS ojs_job_due_queue (queue, state, due_at, id),
    ADD INDEX IF NOT EXISTS ojs_job_expiry (state, expires_at),
    ADD INDEX IF NOT EXISTS ojs_job_active (worker_id, state),
    ADD INDEX IF NOT EXISTS ojs_job_finished (state, dead_letter, finished_at, id),
    ADD INDEX IF NOT EXISTS ojs_job_dead (dead_letter, finished_at, id),
    ADD INDEX IF NOT EXISTS ojs_job_original_queue (original_queue),
    ADD INDEX IF NOT EXISTS ojs_job_unique (unique_key),
    ADD INDEX IF NOT EXISTS ojs_job_parent (parent_id, id);

ALTER TABLE ojs_attempt CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

ALTER TABLE ojs_audit_entry CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_audit_entry_actor (actor, id),
    ADD INDEX IF NOT EXISTS ojs_audit_entry_action (action, id),
    ADD INDEX IF NOT EXISTS ojs_audit_entry_object (object_id, id);

ALTER TABLE ojs_bound CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

ALTER TABLE ojs_bulk_operation CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_bulk_operation_open (state, id);

ALTER TABLE ojs_event CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_event_no_position (position, id),
    ADD INDEX IF NOT EXISTS ojs_event_subject (subject, id),
    ADD INDEX IF NOT EXISTS ojs_event_time (time);

ALTER TABLE ojs_known_name CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_known_name_principal (principal, kind);

ALTER TABLE ojs_incident CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

ALTER TABLE ojs_lease CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

ALTER TABLE ojs_queue CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

ALTER TABLE ojs_rollup CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
    ADD INDEX IF NOT EXISTS ojs_rollup_key (minute, queue, type),
    ADD INDEX IF NOT EXISTS ojs_rollup_type (type, minute);

ALTER TABLE ojs_worker CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- Rows that are locked in place of what they stand for, because on MariaDB only row locks end with a
-- transaction: 4096 for each of the five kinds of names (see contrib/mariadb/row_locks.py), then 32
-- shares for each of 256 queues and 1024 parts of queues (see admission_shares.py, beside it).
-- On a node of a Galera cluster a lock changes its row (see galera.py).
CREATE TABLE IF NOT EXISTS ojs_lock
    (slot integer NOT NULL PRIMARY KEY, times_locked bigint NOT NULL DEFAULT 0) ENGINE = InnoDB;

INSERT IGNORE INTO ojs_lock (slot)
WITH digits (n) AS (
    SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
    UNION ALL SELECT 10 UNION ALL SELECT 11 UNION ALL SELECT 12 UNION ALL SELECT 13
    UNION ALL SELECT 14 UNION ALL SELECT 15
)
SELECT ((k.n * 16 + a.n) * 16 + b.n) * 16 + c.n
FROM digits AS k, digits AS a, digits AS b, digits AS c WHERE k.n < 15;
