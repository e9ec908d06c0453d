-- Locks rows of ojs_lock until the transaction ends, in their order, so that two statements cannot
-- deadlock. {how}: with SKIP LOCKED, leave out those that another transaction has locked.
SELECT slot, current_setting('transaction_isolation') FROM ojs_lock
WHERE slot IN ({slots}) ORDER BY slot FOR UPDATE {how}
