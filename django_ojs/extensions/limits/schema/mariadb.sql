-- The journal of limit keys of which held jobs may be able to start (operations/limits reads it).
--
-- Each way by which a job leaves its place under a limit is an UPDATE of its state, or a DELETE. A job
-- that a claim reschedules or drops at its limit makes no room for another one. This file may be run
-- again.
-- A trigger cannot name the column that a statement sets, so it compares the states.

CREATE OR REPLACE TRIGGER ojs_job_limit_update AFTER UPDATE ON ojs_job FOR EACH ROW
BEGIN
    IF OLD.limit_key IS NOT NULL AND NEW.state <> OLD.state AND NEW.state <> 'active'
       AND (OLD.state = 'active' OR NEW.limit_hold = 2
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
