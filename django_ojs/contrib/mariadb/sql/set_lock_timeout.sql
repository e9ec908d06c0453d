-- Sets for how many seconds the session waits for a lock.
SET SESSION innodb_lock_wait_timeout = %s
