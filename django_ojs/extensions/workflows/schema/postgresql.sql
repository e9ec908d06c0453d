-- The journal of the ended jobs of workflows, which operations/advance.py of this extension reads.
--
-- Each way by which a job ends is an UPDATE of its state, or a DELETE. The triggers append a row in
-- the same transaction, and lock no row that another writer needs.
--
-- The condition is evaluated for each row without a call of a function: a plain job costs one
-- comparison of a number, and a statement that does not set the state costs nothing.
--
-- This file is run statement by statement: a blank line ends a statement, and no statement contains
-- one. It may be run again.

CREATE OR REPLACE FUNCTION ojs_job_workflow_update() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_workflow_ended_job (workflow_id, job_id, state)
    VALUES ((NEW.options ->> 'workflow_id')::uuid, NEW.id, NEW.state);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_workflow_delete() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_workflow_ended_job (workflow_id, job_id, state)
    VALUES ((OLD.options ->> 'workflow_id')::uuid, OLD.id, 'deleted');
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_job_workflow_update AFTER UPDATE OF state ON ojs_job FOR EACH ROW
    WHEN (NEW.marks & {mark} <> 0 AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL)
    EXECUTE FUNCTION ojs_job_workflow_update();

CREATE OR REPLACE TRIGGER ojs_job_workflow_delete AFTER DELETE ON ojs_job FOR EACH ROW
    WHEN (OLD.marks & {mark} <> 0 AND OLD.finished_at IS NULL)
    EXECUTE FUNCTION ojs_job_workflow_delete();
