-- A checkpoint ends with its job; a dead letter keeps it for a retry by hand.

CREATE OR REPLACE TRIGGER ojs_job_checkpoint_end AFTER UPDATE ON ojs_job FOR EACH ROW
BEGIN
    IF NEW.marks & {mark} <> 0 AND NEW.finished_at IS NOT NULL AND NOT NEW.dead_letter
       AND NOT (NEW.state <=> OLD.state AND NEW.dead_letter <=> OLD.dead_letter) THEN
        DELETE FROM ojs_checkpoint WHERE job_id = NEW.id;
    END IF;
END;

CREATE OR REPLACE TRIGGER ojs_job_checkpoint_delete AFTER DELETE ON ojs_job FOR EACH ROW
BEGIN
    IF OLD.marks & {mark} <> 0 THEN
        DELETE FROM ojs_checkpoint WHERE job_id = OLD.id;
    END IF;
END;
