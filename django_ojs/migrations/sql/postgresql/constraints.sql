-- All CHECK constraints of the jobs as one that calls a function.
--
-- PostgreSQL keeps the condition of a CHECK as text, and parses it again for each statement that
-- writes to the table: for the fifteen of the model, that was 45 % of the instructions of a PUSH
-- of one job. A session parses a function once.
--
-- The rules are those of `models.Job`, and so are the names in the errors; a test compares them.
-- Columns that are NOT NULL in the table are never NULL here.
--
-- This file is run statement by statement: a blank line ends a statement, and no statement contains
-- one. It may be run again: the table is read only if the constraint is missing.

CREATE OR REPLACE FUNCTION ojs_job_is_valid(
    state varchar, priority smallint, attempt integer, max_attempts integer, returned integer,
    lost_with_others integer, run integer, hold smallint, timeout_ms bigint,
    visibility_timeout_ms bigint, lease_ms bigint, due_at timestamptz, started_at timestamptz,
    lease_until timestamptz, finished_at timestamptz, dead_letter boolean
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    broken text;
BEGIN
    IF NOT (CASE WHEN finished_at IS NULL
                 THEN state::text = ANY ('{scheduled,available,pending,active,retryable}'::text[])
                 ELSE state::text = ANY ('{completed,cancelled,discarded}'::text[]) END)
       OR (due_at IS NULL AND state::text = ANY ('{scheduled,retryable}'::text[]))
       OR ((lease_until IS NULL OR started_at IS NULL) AND state::text = 'active')
       OR (dead_letter AND NOT state::text = 'discarded')
       OR priority NOT BETWEEN -100 AND 100
       -- least() ignores NULLs.
       OR least(attempt, max_attempts, returned, lost_with_others, run, hold) < 0
       OR least(timeout_ms, visibility_timeout_ms, lease_ms) < 0
    THEN
        broken := CASE
            WHEN state NOT IN ('scheduled', 'available', 'pending', 'active', 'retryable',
                               'completed', 'cancelled', 'discarded') THEN 'state'
            WHEN (finished_at IS NOT NULL) <> (state IN ('completed', 'cancelled', 'discarded'))
                THEN 'finished_has_time'
            WHEN due_at IS NULL AND state IN ('scheduled', 'retryable') THEN 'waiting_has_due_time'
            WHEN (lease_until IS NULL OR started_at IS NULL) AND state = 'active'
                THEN 'active_has_lease'
            WHEN dead_letter AND state <> 'discarded' THEN 'dead_letter'
            WHEN priority NOT BETWEEN -100 AND 100 THEN 'priority'
            WHEN attempt < 0 THEN 'attempt_check'
            WHEN max_attempts < 0 THEN 'max_attempts_check'
            WHEN returned < 0 THEN 'returned_check'
            WHEN lost_with_others < 0 THEN 'lost_with_others_check'
            WHEN run < 0 THEN 'run_check'
            WHEN hold < 0 THEN 'hold_check'
            WHEN timeout_ms < 0 THEN 'timeout_ms_check'
            WHEN visibility_timeout_ms < 0 THEN 'visibility_timeout_ms_check'
            ELSE 'lease_ms_check' END;
        RAISE check_violation USING
            MESSAGE = format(
                'new row for relation "ojs_job" violates check constraint "ojs_job_%s"', broken),
            TABLE = 'ojs_job', CONSTRAINT = 'ojs_job_' || broken;
    END IF;
    RETURN true;
END $$;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_constraint
               WHERE conrelid = 'ojs_job'::regclass AND conname = 'ojs_job_is_valid') THEN
        RETURN;
    END IF;
    ALTER TABLE ojs_job
        DROP CONSTRAINT IF EXISTS ojs_job_state,
        DROP CONSTRAINT IF EXISTS ojs_job_finished_has_time,
        DROP CONSTRAINT IF EXISTS ojs_job_waiting_has_due_time,
        DROP CONSTRAINT IF EXISTS ojs_job_active_has_lease,
        DROP CONSTRAINT IF EXISTS ojs_job_dead_letter,
        DROP CONSTRAINT IF EXISTS ojs_job_priority,
        DROP CONSTRAINT IF EXISTS ojs_job_attempt_check,
        DROP CONSTRAINT IF EXISTS ojs_job_max_attempts_check,
        DROP CONSTRAINT IF EXISTS ojs_job_returned_check,
        DROP CONSTRAINT IF EXISTS ojs_job_lost_with_others_check,
        DROP CONSTRAINT IF EXISTS ojs_job_run_check,
        DROP CONSTRAINT IF EXISTS ojs_job_hold_check,
        DROP CONSTRAINT IF EXISTS ojs_job_timeout_ms_check,
        DROP CONSTRAINT IF EXISTS ojs_job_visibility_timeout_ms_check,
        DROP CONSTRAINT IF EXISTS ojs_job_lease_ms_check,
        ADD CONSTRAINT ojs_job_is_valid CHECK (ojs_job_is_valid(
            state, priority, attempt, max_attempts, returned, lost_with_others, run, hold,
            timeout_ms, visibility_timeout_ms, lease_ms, due_at, started_at, lease_until,
            finished_at, dead_letter));
END $$;
