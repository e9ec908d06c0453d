-- Locks unique keys, which are given as numbers, until the transaction ends.
--
-- Locks of a transaction, not of a session, because those work through a pooler. A later statement
-- reads the jobs that hold the keys: this one would not see what was committed while it waited.
--
-- With {{try_}} it does not wait, and says which keys it has locked.
SELECT pg_{{try_}}advisory_xact_lock(key), current_setting('transaction_isolation')
FROM unnest(%s::bigint[]) AS key
