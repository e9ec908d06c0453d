-- The keys that have to be checked. The write lock is the lock of every key.
SELECT DISTINCT limit_key, 1 FROM ojs_limit_check WHERE due_at <= {now} LIMIT %(limit)s
