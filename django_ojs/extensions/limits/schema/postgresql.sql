-- What the limits by key add to the table of jobs. A job with a limit has its key in `options`.
--
-- The journal (see `limit_journal`) has the limit keys whose held jobs may be able to start. A job
-- leaves its place under a limit by an UPDATE of its state, or by a DELETE. The
-- triggers append a row in the same transaction, and lock no row that another writer needs. A held job
-- that ended and is retried is checked as well. A job that a claim reschedules or drops at its
-- limit makes no room for another one.
--
-- The conditions are evaluated for each row without a call of a function, and read `options` last.
--
-- This file is run statement by statement: a blank line ends a statement, and no statement contains
-- one. It may be run again.

-- The running jobs of a key.
CREATE INDEX IF NOT EXISTS ojs_job_limit_active ON ojs_job ((options ->> 'limit_key'))
    WHERE state = 'active' AND (options ->> 'limit_key') IS NOT NULL;

-- The waiting jobs of a key.
CREATE INDEX IF NOT EXISTS ojs_job_limit_waiting
    ON ojs_job ((options ->> 'limit_key'), queue, hold, priority DESC, enqueued_at, id)
    WHERE state = 'available' AND (options ->> 'limit_key') IS NOT NULL;

-- The jobs of a key that are due later, such as rescheduled ones.
CREATE INDEX IF NOT EXISTS ojs_job_limit_due ON ojs_job ((options ->> 'limit_key'), due_at)
    WHERE state IN ('scheduled', 'retryable') AND (options ->> 'limit_key') IS NOT NULL;

-- A process without the extension may insert a job with a limit, which only claims with limits may take.
-- A job that another extension holds stays held by it, and gets its key.
CREATE OR REPLACE FUNCTION ojs_job_limit_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.hold = 0 THEN
        NEW.hold := 14;
    END IF;
    IF NOT NEW.options ? 'limit_key' THEN
        NEW.options := NEW.options || jsonb_build_object('limit_key',
            coalesce(NEW.options #>> '{rate_limit,key}', left('queue:' || NEW.queue, 255)));
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER ojs_job_limit_insert BEFORE INSERT ON ojs_job FOR EACH ROW
    WHEN (NEW.options -> 'rate_limit' <> '{}')
    EXECUTE FUNCTION ojs_job_limit_insert();

CREATE OR REPLACE FUNCTION ojs_job_limit_check() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_limit_check (limit_key, due_at)
    VALUES (OLD.options ->> 'limit_key', statement_timestamp());
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_job_limit_update AFTER UPDATE OF state ON ojs_job FOR EACH ROW
    WHEN (NEW.state <> 'active'
          AND (OLD.state = 'active' OR NEW.hold = 78
               OR (OLD.state = 'available' AND NEW.state <> 'scheduled'
                   AND NEW.discard_reason IS DISTINCT FROM 'rate_limited'))
          AND OLD.options ->> 'limit_key' IS NOT NULL)
    EXECUTE FUNCTION ojs_job_limit_check();

CREATE OR REPLACE TRIGGER ojs_job_limit_delete AFTER DELETE ON ojs_job FOR EACH ROW
    WHEN (OLD.finished_at IS NULL AND OLD.options ->> 'limit_key' IS NOT NULL)
    EXECUTE FUNCTION ojs_job_limit_check();
