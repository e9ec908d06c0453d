-- What the limits by key add to the table of jobs. A job with a limit has its key in `options`.
--
-- The journal (see `limit_journal`) has the limit keys whose held jobs may be able to start. A job
-- leaves its place under a limit by an UPDATE of its state, or by a DELETE. A job
-- that a claim reschedules or drops at its limit makes no room for another one.
--
-- This file may be run again: what exists stays.

-- The running jobs of a key.
CREATE INDEX IF NOT EXISTS ojs_job_limit_active ON ojs_job (options ->> '$.limit_key')
    WHERE state = 'active' AND options ->> '$.limit_key' IS NOT NULL;

-- The waiting jobs of a key.
CREATE INDEX IF NOT EXISTS ojs_job_limit_waiting
    ON ojs_job (options ->> '$.limit_key', queue, hold, priority DESC, enqueued_at, id)
    WHERE state = 'available' AND options ->> '$.limit_key' IS NOT NULL;

-- The jobs of a key that are due later, such as rescheduled ones.
CREATE INDEX IF NOT EXISTS ojs_job_limit_due ON ojs_job (options ->> '$.limit_key', due_at)
    WHERE state IN ('scheduled', 'retryable') AND options ->> '$.limit_key' IS NOT NULL;

-- A process without the extension may insert a job with a limit, which only claims with limits may take.
-- A job that another extension holds stays held by it, and gets its key.
CREATE TRIGGER IF NOT EXISTS ojs_job_limit_insert AFTER INSERT ON ojs_job
WHEN NEW.options <> '{}' AND NEW.options -> '$.rate_limit' <> '{}' BEGIN
    UPDATE ojs_job
    SET hold = CASE hold WHEN 0 THEN 14 ELSE hold END,
        options = CASE WHEN options ->> '$.limit_key' IS NOT NULL THEN options
                       ELSE json_set(options, '$.limit_key',
                                     coalesce(options ->> '$.rate_limit.key', 'queue:' || queue)) END
    WHERE id = NEW.id;
END;

CREATE TRIGGER IF NOT EXISTS ojs_job_limit_update AFTER UPDATE OF state ON ojs_job
WHEN NEW.state <> 'active'
    AND (OLD.state = 'active' OR NEW.hold = 78
         OR (OLD.state = 'available' AND NEW.state <> 'scheduled'
             AND NEW.discard_reason IS NOT 'rate_limited'))
    AND OLD.options ->> '$.limit_key' IS NOT NULL BEGIN
    INSERT INTO ojs_limit_check (limit_key, due_at)
    VALUES (OLD.options ->> '$.limit_key', strftime('%Y-%m-%d %H:%M:%f', 'now'));
END;

CREATE TRIGGER IF NOT EXISTS ojs_job_limit_delete AFTER DELETE ON ojs_job
WHEN OLD.finished_at IS NULL AND OLD.options ->> '$.limit_key' IS NOT NULL BEGIN
    INSERT INTO ojs_limit_check (limit_key, due_at)
    VALUES (OLD.options ->> '$.limit_key', strftime('%Y-%m-%d %H:%M:%f', 'now'));
END;
