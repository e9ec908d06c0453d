-- A checkpoint ends with its job; a dead letter keeps it for a retry by hand.

CREATE TRIGGER IF NOT EXISTS ojs_job_checkpoint_end AFTER UPDATE OF state, dead_letter ON ojs_job
WHEN NEW.marks & {mark} <> 0 AND NEW.finished_at IS NOT NULL AND NOT NEW.dead_letter BEGIN
    DELETE FROM ojs_checkpoint WHERE job_id = NEW.id;
END;

CREATE TRIGGER IF NOT EXISTS ojs_job_checkpoint_delete AFTER DELETE ON ojs_job
WHEN OLD.marks & {mark} <> 0 BEGIN
    DELETE FROM ojs_checkpoint WHERE job_id = OLD.id;
END;
