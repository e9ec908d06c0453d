-- Admission to bounded queues without counting (see extensions/backpressure/storage.py).
--
-- The numbers are those of that file. Advisory locks of class 20298 belong to the queues. A
-- transaction that adds more than its share also holds a lock of the classes 20299 to 20304, which
-- says how often its share was doubled: at most six times, to 64 shares, which are the whole bound.

-- The sequences that give out admission tickets. Queues that share one run out of tickets sooner,
-- and renew them sooner.
DO $$
BEGIN
    FOR slot IN 0..15 LOOP
        EXECUTE format('CREATE SEQUENCE IF NOT EXISTS ojs_ticket_%s', slot);
    END LOOP;
END $$;

-- Take `cost` tickets and return the number of the last one.
CREATE OR REPLACE FUNCTION ojs_spend(slot integer, cost bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    tickets regclass := format('ojs_ticket_%s', slot)::regclass;
    last bigint;
BEGIN
    IF cost = 1 THEN
        RETURN nextval(tickets);
    END IF;
    SELECT max(nextval(tickets)) INTO last FROM generate_series(1, cost);
    RETURN last;
END $$;

-- Return whether a queue has room for these jobs; also false if only a count under the queue lock can decide.
-- `alone`: the statement is a transaction of its own.
CREATE OR REPLACE FUNCTION ojs_admit(name text, jobs bigint, size bigint, alone boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    bound record;
    cost bigint;
    spent bigint;
    last bigint;
    doublings integer := 0;
    reserved bigint;
    room bigint;
    waiting bigint;
    waiting_bytes bigint;
BEGIN
    SELECT b.*, b.xmin AS version INTO bound FROM ojs_bound AS b WHERE queue = name;
    IF NOT FOUND THEN
        RETURN NOT EXISTS (SELECT FROM ojs_bound WHERE queue = '_default');
    END IF;
    IF bound.ceiling IS NULL AND bound.ceiling_bytes IS NULL THEN
        RETURN true;
    END IF;
    -- A setting of the transaction holds how many tickets it has taken so far.
    cost := jobs + coalesce(size / bound.unit, 0);
    spent := cost + coalesce(nullif(current_setting('ojs.tickets', true), ''), '0')::bigint;
    IF spent > bound.share * 64
       OR NOT pg_try_advisory_xact_lock_shared(20298, hashtext(name)) THEN
        RETURN false;
    END IF;
    WHILE bound.share << doublings < spent LOOP
        doublings := doublings + 1;
    END LOOP;
    IF doublings > 0 THEN
        -- This lock excludes no transaction: it says in pg_locks how much this one may add.
        PERFORM pg_advisory_xact_lock_shared(20298 + doublings, hashtext(name));
    END IF;
    last := ojs_spend(bound.slot, cost);
    IF last <= bound.since OR last > bound.until THEN
        IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
            RETURN false;
        END IF;
        SELECT sum(reservation) INTO reserved FROM (
            SELECT bound.share << max(classid::bigint - 20298)::integer AS reservation
            FROM pg_locks
            WHERE locktype = 'advisory' AND objsubid = 2
              AND classid::bigint BETWEEN 20298 AND 20298 + 6
              AND objid = (hashtext(name)::bigint & 4294967295)::oid
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            GROUP BY virtualtransaction
        ) AS holders;
        -- Active jobs count too: they may return to the queue, without being admitted again.
        SELECT coalesce(sum(n), 0), coalesce(sum(bytes), 0) INTO waiting, waiting_bytes FROM (
            SELECT n, bytes FROM ojs_count
            WHERE queue = name AND state IN ('available', 'scheduled', 'retryable', 'active')
            UNION ALL SELECT n, bytes FROM ojs_count_change
            WHERE queue = name AND state IN ('available', 'scheduled', 'retryable', 'active')
        ) AS counted;
        room := least(bound.ceiling - waiting,
                      (bound.ceiling_bytes - waiting_bytes) / bound.unit) - reserved;
        IF room < 0 THEN
            RETURN false;
        END IF;
        IF alone THEN
            -- This changes no row if the tickets were renewed, or the bound changed, in between.
            UPDATE ojs_bound SET since = last, until = last + room
            WHERE queue = name AND xmin = bound.version;
        END IF;
    END IF;
    PERFORM set_config('ojs.tickets', spent::text, true);
    RETURN true;
END $$;

-- Admit all of the jobs or none. The exception block gives back the shared locks when one queue
-- rejects: two transactions that hold a shared lock and wait for the queue lock would deadlock.
CREATE OR REPLACE FUNCTION ojs_admit_all(queues text[], jobs bigint[], sizes bigint[], alone boolean)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..cardinality(queues) LOOP
        IF NOT ojs_admit(queues[i], jobs[i], sizes[i], alone) THEN
            RAISE SQLSTATE 'OJS01';
        END IF;
    END LOOP;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'OJS01' THEN
    RETURN false;
END $$;
