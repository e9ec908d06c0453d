-- The triggers of the counts (see counts.sql): one row for each queue and state that a statement
-- changes, however many jobs it changes. Dead letters are counted apart from other discarded jobs.

CREATE OR REPLACE FUNCTION ojs_job_count_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, CASE WHEN dead_letter THEN 'dead_letter' ELSE state END,
           count(*), coalesce(sum(size_bytes), 0)
    FROM new_jobs GROUP BY 1, 2;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_update() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, state, sum(n), sum(bytes) FROM (
        SELECT queue, CASE WHEN dead_letter THEN 'dead_letter' ELSE state END AS state,
               1 AS n, coalesce(size_bytes, 0) AS bytes
        FROM new_jobs
        UNION ALL SELECT queue, CASE WHEN dead_letter THEN 'dead_letter' ELSE state END,
                         -1, -coalesce(size_bytes, 0)
        FROM old_jobs
    ) AS moved GROUP BY queue, state HAVING sum(n) <> 0 OR sum(bytes) <> 0;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_delete() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, CASE WHEN dead_letter THEN 'dead_letter' ELSE state END,
           -count(*), -coalesce(sum(size_bytes), 0)
    FROM old_jobs GROUP BY 1, 2;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_truncate() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM ojs_count_change;
    DELETE FROM ojs_count;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_job_count_insert AFTER INSERT ON ojs_job
    REFERENCING NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION ojs_job_count_insert();

CREATE OR REPLACE TRIGGER ojs_job_count_update AFTER UPDATE ON ojs_job
    REFERENCING OLD TABLE AS old_jobs NEW TABLE AS new_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION ojs_job_count_update();

CREATE OR REPLACE TRIGGER ojs_job_count_delete AFTER DELETE ON ojs_job
    REFERENCING OLD TABLE AS old_jobs FOR EACH STATEMENT EXECUTE FUNCTION ojs_job_count_delete();

CREATE OR REPLACE TRIGGER ojs_job_count_truncate AFTER TRUNCATE ON ojs_job
    FOR EACH STATEMENT EXECUTE FUNCTION ojs_job_count_truncate();
