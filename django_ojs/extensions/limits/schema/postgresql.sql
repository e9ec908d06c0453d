-- The journal of limit keys of which held jobs may be able to start (operations/limits reads it).
--
-- Each way by which a job leaves its place under a limit is an UPDATE of its state, or a DELETE. The
-- triggers append a row in the same transaction, and lock none that another writer needs. A job that
-- was held when it ended and comes back is checked too. A job that a claim reschedules or drops at its
-- limit makes no room for another one.
--
-- The condition is evaluated for each row without a call of a function: a plain job pays for
-- one comparison with NULL, and a statement that does not set the state not even that.
--
-- This file is run statement by statement: a blank line ends a statement, and there is none within
-- one. It may be run again.

CREATE OR REPLACE FUNCTION ojs_job_limit_check() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_limit_check (limit_key, due_at) VALUES (OLD.limit_key, statement_timestamp());
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_job_limit_update AFTER UPDATE OF state ON ojs_job FOR EACH ROW
    WHEN (OLD.limit_key IS NOT NULL AND NEW.state <> 'active'
          AND (OLD.state = 'active' OR NEW.limit_hold = 2
               OR (OLD.state = 'available' AND NEW.state <> 'scheduled'
                   AND NEW.discard_reason IS DISTINCT FROM 'rate_limited')))
    EXECUTE FUNCTION ojs_job_limit_check();

CREATE OR REPLACE TRIGGER ojs_job_limit_delete AFTER DELETE ON ojs_job FOR EACH ROW
    WHEN (OLD.limit_key IS NOT NULL AND OLD.finished_at IS NULL)
    EXECUTE FUNCTION ojs_job_limit_check();
