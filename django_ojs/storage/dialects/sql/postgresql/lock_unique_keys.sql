-- Locks unique keys, which are given as numbers, until the transaction ends.
--
-- The locks belong to the transaction, not to the session, so that they work through a pooler. A
-- later statement reads the jobs that hold the keys: this one would not see what was committed
-- while it waited.
--
-- With {{try_}} it does not wait, and says which keys it has locked.
SELECT pg_{{try_}}advisory_xact_lock(key), current_setting('transaction_isolation')
FROM unnest(%s::bigint[]) AS key
