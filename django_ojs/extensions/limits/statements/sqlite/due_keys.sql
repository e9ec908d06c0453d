-- Keys whose limits are to check. The write lock is the lock of each.
SELECT DISTINCT limit_key, 1 FROM ojs_limit_check WHERE due_at <= {now} LIMIT %(limit)s
