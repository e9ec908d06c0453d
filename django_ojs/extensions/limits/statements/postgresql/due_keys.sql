-- Keys whose limits are to check, and whether this transaction has the lock of each. None in a caller's
-- transaction in which a statement does not see what was committed before it.
SELECT limit_key, pg_try_advisory_xact_lock(20305, hashtext(limit_key))
FROM (SELECT DISTINCT limit_key FROM ojs_limit_check WHERE due_at <= statement_timestamp()
        AND current_setting('transaction_isolation') LIKE 'read %%'
      LIMIT %(limit)s) AS due
