-- PUSH of one available job, as a procedure: a session plans its INSERT once, not with each job.
--
-- It is called, not selected, because some poolers send a SELECT to a replica. Arguments that are
-- the default can be left out, which takes longer. `stored_at` is in microseconds since 1970, or NULL
-- if the job was not stored, because its id is taken or because ojs_admit did not admit it.
--
-- `new`: the id was generated and cannot be taken. `alone`: NULL skips the admission; otherwise
-- whether the statement is a transaction of its own (see ojs_admit).
CREATE OR REPLACE PROCEDURE ojs_push(
    OUT stored_at bigint,
    id uuid, type text, queue text, args jsonb, size_bytes bigint, max_attempts integer,
    priority integer DEFAULT 0, meta jsonb DEFAULT '{}', options jsonb DEFAULT '{}',
    timeout_ms bigint DEFAULT NULL, visibility_timeout_ms bigint DEFAULT NULL,
    parent_id uuid DEFAULT NULL,
    new boolean DEFAULT true, alone boolean DEFAULT NULL
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    admitted boolean;
BEGIN
    IF alone IS NOT NULL THEN
        IF alone THEN
            admitted := ojs_admit(queue, 1, size_bytes, true);
        ELSE
            admitted := ojs_admit_all(ARRAY[queue], ARRAY[1::bigint], ARRAY[size_bytes], false);
        END IF;
        IF NOT admitted THEN
            RETURN;
        END IF;
    END IF;
    IF new THEN
        INSERT INTO ojs_job (
            id, type, queue, state, priority, args, meta, options, attempt, max_attempts, returned,
            run, timeout_ms, visibility_timeout_ms, parent_id, size_bytes, created_at, enqueued_at,
            dead_letter
        ) VALUES (
            id, type, queue, 'available', priority, args, meta, options, 0, max_attempts, 0,
            0, timeout_ms, visibility_timeout_ms, parent_id, size_bytes, statement_timestamp(),
            statement_timestamp(), false
        );
    ELSE
        INSERT INTO ojs_job (
            id, type, queue, state, priority, args, meta, options, attempt, max_attempts, returned,
            run, timeout_ms, visibility_timeout_ms, parent_id, size_bytes, created_at, enqueued_at,
            dead_letter
        ) VALUES (
            id, type, queue, 'available', priority, args, meta, options, 0, max_attempts, 0,
            0, timeout_ms, visibility_timeout_ms, parent_id, size_bytes, statement_timestamp(),
            statement_timestamp(), false
        )
        ON CONFLICT (id) DO NOTHING;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    stored_at := EXTRACT(EPOCH FROM statement_timestamp()) * 1000000;
END $$;

-- PUSH of available jobs that differ in their ids and arguments only: what they share is sent once,
-- and the plan is kept, as in ojs_push. `args` is a JSON array with the arguments of each job.
--
-- Their ids were generated. Each job is a microsecond later than the one before it, so that they keep
-- their order; `stored_at` is the time of the first, or NULL if ojs_admit did not admit them. `alone`
-- means the same as in ojs_push.
CREATE OR REPLACE PROCEDURE ojs_push_many(
    OUT stored_at bigint,
    ids uuid[], args jsonb, sizes bigint[], type text, queue text, max_attempts integer,
    priority integer DEFAULT 0, meta jsonb DEFAULT '{}', options jsonb DEFAULT '{}',
    timeout_ms bigint DEFAULT NULL, visibility_timeout_ms bigint DEFAULT NULL,
    parent_id uuid DEFAULT NULL, alone boolean DEFAULT NULL
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- These are two conditions, because one with the SELECT would be a query even for `alone` NULL.
    IF alone IS NOT NULL THEN
        IF NOT ojs_admit_all(
            ARRAY[queue], ARRAY[cardinality(ids)::bigint],
            ARRAY[(SELECT sum(size)::bigint FROM unnest(sizes) AS size)], alone
        ) THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO ojs_job (
        id, type, queue, state, priority, args, meta, options, attempt, max_attempts, returned,
        run, timeout_ms, visibility_timeout_ms, parent_id, size_bytes, created_at, enqueued_at,
        dead_letter
    )
    SELECT
        new.id, type, queue, 'available', priority, new.args, meta, options, 0, max_attempts, 0,
        0, timeout_ms, visibility_timeout_ms, parent_id, new.size,
        statement_timestamp() + (n - 1) * interval '1 microsecond',
        statement_timestamp() + (n - 1) * interval '1 microsecond', false
    FROM ROWS FROM (unnest(ids), jsonb_array_elements(args), unnest(sizes))
        WITH ORDINALITY AS new (id, args, size, n);
    stored_at := EXTRACT(EPOCH FROM statement_timestamp()) * 1000000;
END $$;

-- PUSH of one available job with a generated id, unless a job in one of these `states` holds its unique
-- key: the lock, the search and the INSERT in one call. `held_for`, in seconds, leaves out older jobs.
-- `stored_at` is NULL if nothing was stored; the lock is then released.
--
-- The search sees what was committed while the call waited for the lock, because each statement has a
-- snapshot of its own. If the transaction has a single snapshot, nothing is stored, and `stored_at` is -1.
--
-- The session keeps the plan of the search. `enable_seqscan` is off, because a plan that was made for a
-- small table would not use the index.
--
-- The inner block is a savepoint. It releases the lock, and leaves the caller's transaction usable if
-- the lock cannot be had: the caller asks again, in a savepoint of its own, and gets the error.
CREATE OR REPLACE PROCEDURE ojs_push_unique(
    OUT stored_at bigint,
    id uuid, type text, queue text, args jsonb, size_bytes bigint, max_attempts integer,
    priority integer, meta jsonb, options jsonb, timeout_ms bigint, visibility_timeout_ms bigint,
    parent_id uuid,
    key text, lock bigint, states text[], held_for double precision
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_variable
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        stored_at := -1;
        RETURN;
    END IF;
    BEGIN
        PERFORM pg_advisory_xact_lock(lock);
        PERFORM FROM ojs_job AS job
        WHERE job.unique_key = key AND job.state = ANY (states)
            AND (held_for IS NULL
                 OR job.created_at > statement_timestamp() - held_for * interval '1 second')
        LIMIT 1;
        IF FOUND THEN
            RAISE SQLSTATE 'OJS01';
        END IF;
        INSERT INTO ojs_job (
            id, type, queue, state, priority, args, meta, options, attempt, max_attempts, returned,
            run, timeout_ms, visibility_timeout_ms, parent_id, size_bytes, created_at, enqueued_at,
            unique_key, dead_letter
        ) VALUES (
            id, type, queue, 'available', priority, args, meta, options, 0, max_attempts, 0,
            0, timeout_ms, visibility_timeout_ms, parent_id, size_bytes, statement_timestamp(),
            statement_timestamp(), key, false
        );
        stored_at := EXTRACT(EPOCH FROM statement_timestamp()) * 1000000;
    EXCEPTION
        WHEN SQLSTATE 'OJS01' OR out_of_memory OR lock_not_available OR deadlock_detected THEN
    END;
END $$;
