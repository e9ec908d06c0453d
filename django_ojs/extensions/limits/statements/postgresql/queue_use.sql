-- The limits of a queue and how much of them is used, for the holder of the limit's lock: the active jobs,
-- the starts, and the time in milliseconds; and whether the statement sees all that was committed
-- before the lock was taken.
SELECT (SELECT count(*) FROM ojs_job WHERE state {before_ack} AND queue = %(queue)s),
       (SELECT starts::text FROM ojs_limited_queue WHERE queue = %(queue)s),
       (EXTRACT(EPOCH FROM statement_timestamp()) * 1000)::bigint,
       current_setting('transaction_isolation') LIKE 'read %%',
       (SELECT config::text FROM ojs_queue WHERE name = %(queue)s),
       (SELECT config::text FROM ojs_queue WHERE name = {default_policy})
