-- Limits each statement until the transaction ends, and returns the limit that there was.
SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, true)
