-- Commits an empty message in the WAL, as a write would be; no table is changed. Returns no row if
-- the session may not write.
SELECT pg_logical_emit_message(true, 'django_ojs', '')
WHERE current_setting('transaction_read_only') = 'off'
