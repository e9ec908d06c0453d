-- Counts by queue and state, kept by triggers (storage/figures/counts.py reads them).
--
-- Each statement that changes jobs appends what it changed to ojs_count_change. Writers share no
-- row, so that no writer waits for another, and a long transaction holds no lock that others need.
-- Maintenance folds the changes into ojs_count.
--
-- This file is run statement by statement: a blank line ends a statement, and there is none within
-- one. It may be run again: what exists stays.
--
-- The functions keep the search path under which they were created: pg_dump restores data under an
-- empty one.

-- No model: dumpdata would write counts, and loaddata would add them to those of its jobs.
CREATE TABLE IF NOT EXISTS ojs_count (
    queue varchar(255) NOT NULL,
    state varchar(16) NOT NULL,
    n bigint NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, state)
);

-- It has no index: rows are only appended, read as a whole and deleted as a whole. Autovacuum runs
-- after 1000 dead rows, because every reader of a count reads the whole table.
CREATE TABLE IF NOT EXISTS ojs_count_change (
    queue varchar(255) NOT NULL,
    state varchar(16) NOT NULL,
    n bigint NOT NULL,
    bytes bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- Its rows can be deleted while the table is published (logical replication). A key would cost each
-- enqueue an index entry.
ALTER TABLE ojs_count_change REPLICA IDENTITY FULL;

CREATE OR REPLACE FUNCTION ojs_job_count_insert() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, state, count(*), coalesce(sum(size_bytes), 0) FROM new_jobs GROUP BY queue, state;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_update() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, state, sum(n), sum(bytes) FROM (
        SELECT queue, state, 1 AS n, coalesce(size_bytes, 0) AS bytes FROM new_jobs
        UNION ALL SELECT queue, state, -1, -coalesce(size_bytes, 0) FROM old_jobs
    ) AS moved GROUP BY queue, state HAVING sum(n) <> 0 OR sum(bytes) <> 0;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ojs_job_count_delete() RETURNS trigger LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO ojs_count_change
    SELECT queue, state, -count(*), -coalesce(sum(size_bytes), 0) FROM old_jobs
    GROUP BY queue, state;
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

-- A restore of the data only inserts the jobs, which these triggers count, and the counts of the
-- dump as well. Rows of counts that neither a trigger nor maintenance inserts are left out;
-- maintenance sets ojs.counting.
CREATE OR REPLACE FUNCTION ojs_count_leave_out() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_count_leave_out BEFORE INSERT ON ojs_count FOR EACH ROW
    WHEN (coalesce(current_setting('ojs.counting', true), '') <> 'on')
    EXECUTE FUNCTION ojs_count_leave_out();

CREATE OR REPLACE TRIGGER ojs_count_leave_out BEFORE INSERT ON ojs_count_change FOR EACH ROW
    WHEN (pg_trigger_depth() = 0 AND coalesce(current_setting('ojs.counting', true), '') <> 'on')
    EXECUTE FUNCTION ojs_count_leave_out();
