-- Commits an empty message in the log of the server, as a write is; no table is changed. No row where
-- the session may not write.
SELECT pg_logical_emit_message(true, 'django_ojs', '')
WHERE current_setting('transaction_read_only') = 'off'
