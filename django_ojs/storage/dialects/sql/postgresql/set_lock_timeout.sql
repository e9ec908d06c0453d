-- Limits the wait for each lock until the transaction ends, and returns the limit that there was.
SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)
