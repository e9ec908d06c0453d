-- The keys that have to be checked, and whether this transaction has the lock of each. A caller's transaction
-- with one snapshot gets none, because its statements do not see what was committed before them.
SELECT limit_key, pg_try_advisory_xact_lock(20305, hashtext(limit_key))
FROM (SELECT DISTINCT limit_key FROM ojs_limit_check WHERE due_at <= statement_timestamp()
        AND current_setting('transaction_isolation') LIKE 'read %%'
      LIMIT %(limit)s) AS due
