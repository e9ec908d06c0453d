-- Counts by queue and state, kept by triggers (storage/figures/counts.py reads them).
--
-- SQLite has one writer at a time, so that the triggers can write the counts themselves. A queue
-- and state without a row have no jobs. Dead letters are counted apart from other discarded jobs.
--
-- On SQLite, Django changes most columns by building the table anew, which drops its triggers. This
-- file may be run again: what exists stays.

-- This is no model: dumpdata would write the counts, and loaddata would count the jobs twice.
CREATE TABLE IF NOT EXISTS ojs_count (
    queue varchar(255) NOT NULL,
    state varchar(16) NOT NULL,
    n bigint NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, state)
);

CREATE TRIGGER IF NOT EXISTS ojs_job_count_insert AFTER INSERT ON ojs_job BEGIN
    INSERT INTO ojs_count (queue, state, n, bytes)
    VALUES (NEW.queue, iif(NEW.dead_letter, 'dead_letter', NEW.state), 1, coalesce(NEW.size_bytes, 0))
    ON CONFLICT (queue, state) DO UPDATE SET n = n + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER IF NOT EXISTS ojs_job_count_update
AFTER UPDATE OF queue, state, dead_letter, size_bytes ON ojs_job
WHEN OLD.queue <> NEW.queue OR OLD.state <> NEW.state OR OLD.dead_letter <> NEW.dead_letter
     OR OLD.size_bytes IS NOT NEW.size_bytes BEGIN
    UPDATE ojs_count SET n = n - 1, bytes = bytes - coalesce(OLD.size_bytes, 0)
    WHERE queue = OLD.queue AND state = iif(OLD.dead_letter, 'dead_letter', OLD.state);
    INSERT INTO ojs_count (queue, state, n, bytes)
    VALUES (NEW.queue, iif(NEW.dead_letter, 'dead_letter', NEW.state), 1, coalesce(NEW.size_bytes, 0))
    ON CONFLICT (queue, state) DO UPDATE SET n = n + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER IF NOT EXISTS ojs_job_count_delete AFTER DELETE ON ojs_job BEGIN
    UPDATE ojs_count SET n = n - 1, bytes = bytes - coalesce(OLD.size_bytes, 0)
    WHERE queue = OLD.queue AND state = iif(OLD.dead_letter, 'dead_letter', OLD.state);
END;
