-- Limits each wait for a lock, or each statement, until the transaction ends, and returns the
-- former limit.
SELECT current_setting('{{limit}}'), set_config('{{limit}}', %s, true)
