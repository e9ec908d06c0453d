-- Counts by queue and state, kept by triggers (storage/figures/counts.py reads them).
--
-- The triggers append what changed to ojs_count_change, a row for each job. Writers share no row, so
-- that no writer waits for another. Maintenance folds the changes into ojs_count. Dead letters are
-- counted apart from other discarded jobs.
--
-- This file is run statement by statement: a blank line ends a statement, and there is none within
-- one. It may be run again: what exists stays.

-- The table has no model: dumpdata would write counts, and loaddata would add them to the counts of its jobs.
CREATE TABLE IF NOT EXISTS ojs_count (
    queue varchar(255) NOT NULL,
    state varchar(16) NOT NULL,
    n bigint NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, state)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS ojs_count_change (
    id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue varchar(255) NOT NULL,
    state varchar(16) NOT NULL,
    n bigint NOT NULL,
    bytes bigint NOT NULL DEFAULT 0
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

CREATE OR REPLACE TRIGGER ojs_job_count_insert AFTER INSERT ON ojs_job FOR EACH ROW
    INSERT INTO ojs_count_change (queue, state, n, bytes)
    VALUES (NEW.queue, if(NEW.dead_letter, 'dead_letter', NEW.state), 1, coalesce(NEW.size_bytes, 0));

CREATE OR REPLACE TRIGGER ojs_job_count_update AFTER UPDATE ON ojs_job FOR EACH ROW
BEGIN
    IF OLD.queue <> NEW.queue OR OLD.state <> NEW.state OR OLD.dead_letter <> NEW.dead_letter
       OR NOT (OLD.size_bytes <=> NEW.size_bytes) THEN
        INSERT INTO ojs_count_change (queue, state, n, bytes)
        VALUES (OLD.queue, if(OLD.dead_letter, 'dead_letter', OLD.state), -1, -coalesce(OLD.size_bytes, 0)),
               (NEW.queue, if(NEW.dead_letter, 'dead_letter', NEW.state), 1,
                coalesce(NEW.size_bytes, 0));
    END IF;
END;

CREATE OR REPLACE TRIGGER ojs_job_count_delete AFTER DELETE ON ojs_job FOR EACH ROW
    INSERT INTO ojs_count_change (queue, state, n, bytes)
    VALUES (OLD.queue, if(OLD.dead_letter, 'dead_letter', OLD.state), -1, -coalesce(OLD.size_bytes, 0));
