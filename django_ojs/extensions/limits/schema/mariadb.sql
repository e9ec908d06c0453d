-- What the limits by key add to the table of jobs. A job with a limit has its key in `options`.
--
-- The journal (see `limit_journal`) has the limit keys whose held jobs may be able to start. A job
-- leaves its place under a limit by an UPDATE of its state, or by a DELETE. A job
-- that a claim reschedules or drops at its limit makes no room for another one.
--
-- This file may be run again.

-- MariaDB indexes columns only, and no expressions.
ALTER TABLE ojs_job ADD COLUMN IF NOT EXISTS limit_key varchar(255) COLLATE utf8mb4_nopad_bin
    GENERATED ALWAYS AS (JSON_VALUE(options, '$.limit_key')) VIRTUAL;

-- The jobs of a key, by their state.
CREATE INDEX IF NOT EXISTS ojs_job_limit_waiting
    ON ojs_job (limit_key, state, queue, hold, priority DESC, enqueued_at, id);

-- A process without the extension may insert a job with a limit, which only claims with limits may take.
-- A job that another extension holds stays held by it, and gets its key.
CREATE OR REPLACE TRIGGER ojs_job_limit_insert BEFORE INSERT ON ojs_job FOR EACH ROW
BEGIN
    IF NEW.options <> '{}' AND JSON_LENGTH(NEW.options, '$.rate_limit') > 0 THEN
        SET NEW.hold = IF(NEW.hold = 0, 14, NEW.hold);
        IF JSON_VALUE(NEW.options, '$.limit_key') IS NULL THEN
            SET NEW.options = JSON_SET(NEW.options, '$.limit_key', coalesce(
                JSON_VALUE(NEW.options, '$.rate_limit.key'), left(concat('queue:', NEW.queue), 255)));
        END IF;
    END IF;
END;

-- A trigger cannot name the column that a statement sets, so it compares the states.
CREATE OR REPLACE TRIGGER ojs_job_limit_update AFTER UPDATE ON ojs_job FOR EACH ROW
BEGIN
    IF OLD.limit_key IS NOT NULL AND NEW.state <> OLD.state AND NEW.state <> 'active'
       AND (OLD.state = 'active' OR NEW.hold = 78
            OR (OLD.state = 'available' AND NEW.state <> 'scheduled'
                AND NOT (NEW.discard_reason <=> 'rate_limited'))) THEN
        INSERT INTO ojs_limit_check (limit_key, due_at) VALUES (OLD.limit_key, UTC_TIMESTAMP(6));
    END IF;
END;

CREATE OR REPLACE TRIGGER ojs_job_limit_delete AFTER DELETE ON ojs_job FOR EACH ROW
BEGIN
    IF OLD.limit_key IS NOT NULL AND OLD.finished_at IS NULL THEN
        INSERT INTO ojs_limit_check (limit_key, due_at) VALUES (OLD.limit_key, UTC_TIMESTAMP(6));
    END IF;
END;
