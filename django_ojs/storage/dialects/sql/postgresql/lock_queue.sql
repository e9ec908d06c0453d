-- Takes the lock of a bounded queue exclusively, and waits for it until the lock timeout.
--
-- A transaction with one snapshot for all statements does not lock the queue: it would not see what
-- was committed while it waited.
SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true),
       current_setting('transaction_isolation') LIKE 'read %%',
       CASE WHEN current_setting('transaction_isolation') LIKE 'read %%'
            THEN pg_advisory_xact_lock(20298, hashtext(%s)) END
