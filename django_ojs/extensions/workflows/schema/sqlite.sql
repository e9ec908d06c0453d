-- The journal of the ended jobs of workflows, which operations/advance.py of this extension reads.
--
-- Each way by which a job ends is an UPDATE of its state, or a DELETE. This file may be run again:
-- existing triggers stay.

CREATE TRIGGER IF NOT EXISTS ojs_job_workflow_update AFTER UPDATE OF state ON ojs_job
WHEN NEW.marks & {mark} <> 0 AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL BEGIN
    INSERT INTO ojs_workflow_ended_job (workflow_id, job_id, state)
    VALUES (replace(NEW.options ->> 'workflow_id', '-', ''), NEW.id, NEW.state);
END;

CREATE TRIGGER IF NOT EXISTS ojs_job_workflow_delete AFTER DELETE ON ojs_job
WHEN OLD.marks & {mark} <> 0 AND OLD.finished_at IS NULL BEGIN
    INSERT INTO ojs_workflow_ended_job (workflow_id, job_id, state)
    VALUES (replace(OLD.options ->> 'workflow_id', '-', ''), OLD.id, 'deleted');
END;
