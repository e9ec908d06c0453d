-- The journal of the ended jobs of workflows, which operations/advance.py of this extension reads.
--
-- Each way by which a job ends is an UPDATE of its state, or a DELETE. This file may be run again.

CREATE OR REPLACE TRIGGER ojs_job_workflow_update AFTER UPDATE ON ojs_job FOR EACH ROW
BEGIN
    IF NEW.marks & {mark} <> 0 AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL THEN
        INSERT INTO ojs_workflow_ended_job (workflow_id, job_id, state)
        VALUES (JSON_VALUE(NEW.options, '$.workflow_id'), NEW.id, NEW.state);
    END IF;
END;

CREATE OR REPLACE TRIGGER ojs_job_workflow_delete AFTER DELETE ON ojs_job FOR EACH ROW
BEGIN
    IF OLD.marks & {mark} <> 0 AND OLD.finished_at IS NULL THEN
        INSERT INTO ojs_workflow_ended_job (workflow_id, job_id, state)
        VALUES (JSON_VALUE(OLD.options, '$.workflow_id'), OLD.id, 'deleted');
    END IF;
END;
