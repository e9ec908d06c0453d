-- Locks rows of ojs_lock until the transaction ends, in their order, so that two statements cannot
-- deadlock. {skip}: leave out those that another transaction has locked.
SELECT number, current_setting('transaction_isolation') FROM ojs_lock
WHERE kind = {kind} AND number IN ({rows}) ORDER BY number FOR UPDATE {skip}
