-- Counts by queue and state, kept by triggers (storage/figures/counts.py reads them): their tables. The
-- triggers are in count_triggers.sql.
--
-- Each statement that changes jobs appends what it changed to ojs_count_change. Writers share no
-- row, so that no writer waits for another, and a long transaction holds no lock that others need.
-- Maintenance folds the changes into ojs_count.
--
-- This file is run statement by statement: a blank line ends a statement, and no statement contains
-- one. It may be run again: what exists stays.
--
-- The functions in count_triggers.sql keep the search path under which they were created: pg_dump
-- restores data under an empty one.

-- This is no model: dumpdata would write the counts, and loaddata would count the jobs twice.
CREATE TABLE IF NOT EXISTS ojs_count (
    queue varchar(255) NOT NULL,
    state varchar(16) NOT NULL,
    n bigint NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, state)
);

-- This table has no index: its rows are only appended, and all are read or deleted. Autovacuum runs
-- after 1000 dead rows, because every reader of a count reads the whole table.
CREATE TABLE IF NOT EXISTS ojs_count_change (
    queue varchar(255) NOT NULL,
    state varchar(16) NOT NULL,
    n bigint NOT NULL,
    bytes bigint NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- With this, rows can be deleted while the table is published (logical replication). A primary key
-- would cost each enqueue an index entry.
ALTER TABLE ojs_count_change REPLICA IDENTITY FULL;

-- A restore of only the data inserts the jobs, which the triggers count, and also the counts of the
-- dump. So rows of counts that neither a trigger nor maintenance inserts are left out; maintenance
-- sets ojs.counting.
CREATE OR REPLACE FUNCTION ojs_count_leave_out() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ojs_count_leave_out BEFORE INSERT ON ojs_count FOR EACH ROW
    WHEN (coalesce(current_setting('ojs.counting', true), '') <> 'on')
    EXECUTE FUNCTION ojs_count_leave_out();

-- The trigger below has no WHEN, which would be parsed for each statement that changes jobs.
CREATE OR REPLACE FUNCTION ojs_count_change_leave_out() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- At depth 1, no other trigger inserts the row. The inner condition is parsed only if needed.
    IF pg_trigger_depth() = 1 THEN
        IF coalesce(current_setting('ojs.counting', true), '') <> 'on' THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER ojs_count_leave_out BEFORE INSERT ON ojs_count_change
    FOR EACH ROW EXECUTE FUNCTION ojs_count_change_leave_out();
