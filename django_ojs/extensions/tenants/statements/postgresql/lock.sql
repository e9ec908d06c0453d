-- Takes the exclusive lock of a tenant of a queue, and waits for it until the lock timeout.
--
-- A transaction with an old snapshot does not wait: it would not see what was committed since.
SELECT current_setting('lock_timeout'), set_config('lock_timeout', %(timeout)s, true),
       current_setting('transaction_isolation') LIKE 'read %%',
       CASE WHEN current_setting('transaction_isolation') LIKE 'read %%'
            THEN pg_advisory_xact_lock(20306, hashtext(%(queue)s || E'\n' || %(tenant)s)) END
