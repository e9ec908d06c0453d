-- The triggers of the counts (see counts.sql) where there are no transition tables: two rows for each job
-- that a statement changes, which maintenance folds as those of count_triggers.sql.
--
-- Nothing is noted of a TRUNCATE; `migrate` and `doctor` find that.

DROP TRIGGER IF EXISTS ojs_job_count_truncate ON ojs_job;

DROP FUNCTION IF EXISTS ojs_job_count_truncate();

CREATE OR REPLACE FUNCTION ojs_job_count_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change VALUES (NEW.queue, NEW.state, 1, coalesce(NEW.size_bytes, 0));
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_update() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change VALUES
        (NEW.queue, NEW.state, 1, coalesce(NEW.size_bytes, 0)),
        (OLD.queue, OLD.state, -1, -coalesce(OLD.size_bytes, 0));
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_delete() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change VALUES (OLD.queue, OLD.state, -1, -coalesce(OLD.size_bytes, 0));
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_job_count_insert AFTER INSERT ON ojs_job
    FOR EACH ROW EXECUTE FUNCTION ojs_job_count_insert();

CREATE OR REPLACE TRIGGER ojs_job_count_update AFTER UPDATE ON ojs_job FOR EACH ROW
    WHEN (NEW.state <> OLD.state OR NEW.queue <> OLD.queue
          OR NEW.size_bytes IS DISTINCT FROM OLD.size_bytes)
    EXECUTE FUNCTION ojs_job_count_update();

CREATE OR REPLACE TRIGGER ojs_job_count_delete AFTER DELETE ON ojs_job
    FOR EACH ROW EXECUTE FUNCTION ojs_job_count_delete();
