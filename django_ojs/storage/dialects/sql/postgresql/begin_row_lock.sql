-- Limits the wait for the row that the next statement locks. Returns the limit that there was, and
-- whether that statement will see what was committed while it waited.
SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true),
       current_setting('transaction_isolation') LIKE 'read %%'
