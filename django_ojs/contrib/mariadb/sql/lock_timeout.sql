-- For how many seconds the session waits for a lock.
SELECT @@innodb_lock_wait_timeout
