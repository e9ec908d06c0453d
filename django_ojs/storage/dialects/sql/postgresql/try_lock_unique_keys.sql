-- Locks unique keys, as lock_unique_keys does, but for those that another transaction has locked.
-- Does not wait.
SELECT pg_try_advisory_xact_lock(key), current_setting('transaction_isolation')
FROM unnest(%s::bigint[]) AS key
