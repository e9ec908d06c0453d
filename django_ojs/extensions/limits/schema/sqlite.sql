-- The journal of limit keys of which held jobs may be able to start (operations/limits reads it).
--
-- Each way by which a job leaves its place under a limit is an UPDATE of its state, or a DELETE. A job
-- that a claim reschedules or drops at its limit makes no room for another one. This file may be run
-- again: what exists stays.

CREATE TRIGGER IF NOT EXISTS ojs_job_limit_update AFTER UPDATE OF state ON ojs_job
WHEN OLD.limit_key IS NOT NULL AND NEW.state <> 'active'
    AND (OLD.state = 'active' OR NEW.limit_hold = 2
         OR (OLD.state = 'available' AND NEW.state <> 'scheduled'
             AND NEW.discard_reason IS NOT 'rate_limited')) BEGIN
    INSERT INTO ojs_limit_check (limit_key, due_at)
    VALUES (OLD.limit_key, strftime('%Y-%m-%d %H:%M:%f', 'now'));
END;

CREATE TRIGGER IF NOT EXISTS ojs_job_limit_delete AFTER DELETE ON ojs_job
WHEN OLD.limit_key IS NOT NULL AND OLD.finished_at IS NULL BEGIN
    INSERT INTO ojs_limit_check (limit_key, due_at)
    VALUES (OLD.limit_key, strftime('%Y-%m-%d %H:%M:%f', 'now'));
END;
