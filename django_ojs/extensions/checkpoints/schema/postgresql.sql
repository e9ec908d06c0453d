-- A checkpoint ends with its job; a dead letter keeps it for a retry by hand.
--
-- The conditions are in the triggers: no function is called for a job without a checkpoint.

-- A row that is locked belongs to the open transaction of an earlier run, which must not delay the
-- outcomes of other jobs. The maintenance deletes it later; until then it is not shown.
CREATE OR REPLACE FUNCTION ojs_checkpoint_end() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM ojs_checkpoint WHERE job_id = (
        SELECT job_id FROM ojs_checkpoint WHERE job_id = OLD.id FOR UPDATE SKIP LOCKED
    );
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_job_checkpoint_end AFTER UPDATE OF state, dead_letter ON ojs_job
    FOR EACH ROW WHEN (NEW.marks & {mark} <> 0 AND NEW.finished_at IS NOT NULL AND NOT NEW.dead_letter)
    EXECUTE FUNCTION ojs_checkpoint_end();

CREATE OR REPLACE TRIGGER ojs_job_checkpoint_delete AFTER DELETE ON ojs_job
    FOR EACH ROW WHEN (OLD.marks & {mark} <> 0) EXECUTE FUNCTION ojs_checkpoint_end();
