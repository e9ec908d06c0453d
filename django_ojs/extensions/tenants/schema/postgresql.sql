-- What tenants add to the table of jobs. A job has the mark of this extension where the configuration
-- of its queue names tenants.
--
-- This file is run statement by statement: a blank line ends a statement, and there is none within
-- one. It may be run again.

-- Return the tenant of a job with this metadata, as `spec.tenant_of` does.
CREATE OR REPLACE FUNCTION ojs_tenant(meta jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_typeof(meta -> 'tenant_id') = 'string'
                 AND meta ->> 'tenant_id' ~ '^[a-zA-Z0-9][a-zA-Z0-9._:-]*$'
                 AND length(meta ->> 'tenant_id') <= 255
                THEN meta ->> 'tenant_id' ELSE '_default' END
$$;

-- FETCH by turns: the tenants of a priority, and the jobs of each. Jobs that no claim considers are
-- left out.
CREATE INDEX IF NOT EXISTS ojs_job_tenant_turn
    ON ojs_job (queue, priority DESC, ojs_tenant(meta), enqueued_at, id)
    WHERE marks & {mark} <> 0 AND state = 'available' AND hold < 64;

-- Tenants of a queue: the number of waiting jobs of each.
CREATE INDEX IF NOT EXISTS ojs_job_tenant_waiting ON ojs_job (queue, ojs_tenant(meta))
    WHERE marks & {mark} <> 0 AND state IN ('available', 'retryable', 'scheduled');

-- Return whether a tenant has room for these jobs in a queue; false also where only a count under the
-- tenant's lock can decide (see `storage`). Advisory locks of class 20306 belong to tenants of queues.
--
-- As in ojs_admit, a transaction that adds jobs holds a shared lock until it ends, and adds no more than
-- its share of the bound. The jobs are counted by a later statement than the locks, which sees the jobs
-- of a transaction that ended between the two. The exception block gives the lock back where the
-- tenant has no room.
CREATE OR REPLACE FUNCTION ojs_admit_tenant(name text, tenant text, jobs bigint, bound bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    lock integer := hashtext(name || E'\n' || tenant);
    share bigint := greatest(1, bound / 64);
    -- A setting of the transaction holds how many jobs it has added to tenants with a bound.
    added bigint := jobs + coalesce(nullif(current_setting('ojs.tenant_jobs', true), ''), '0')::bigint;
    reserved bigint;
    waiting bigint;
BEGIN
    IF added > share OR NOT pg_try_advisory_xact_lock_shared(20306, lock) THEN
        RAISE SQLSTATE 'OJS01';
    END IF;
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        PERFORM set_config('ojs.tenant_jobs', added::text, true);
        RETURN NULL;
    END IF;
    SELECT share * count(DISTINCT virtualtransaction) INTO reserved FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND classid::bigint = 20306
      AND objid = (lock::bigint & 4294967295)::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    SELECT count(*) INTO waiting FROM (
        SELECT FROM ojs_job
        WHERE queue = name AND ojs_tenant(meta) = tenant
          AND marks & {mark} <> 0 AND state IN ('available', 'retryable', 'scheduled')
        LIMIT greatest(0, bound - reserved + 1)
    ) AS counted;
    IF waiting + reserved > bound THEN
        RAISE SQLSTATE 'OJS01';
    END IF;
    PERFORM set_config('ojs.tenant_jobs', added::text, true);
    RETURN true;
EXCEPTION WHEN SQLSTATE 'OJS01' THEN
    RETURN false;
END $$;
