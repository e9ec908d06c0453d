-- Limits each statement of the session, and returns the limit that there was.
SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s, false)
