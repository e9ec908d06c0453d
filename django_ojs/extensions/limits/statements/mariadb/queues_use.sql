-- The limits of a queue and how much of them is used, exact while the limits are locked: the active jobs,
-- the starts, and the time in milliseconds; and whether the statement sees all that was committed
-- before the lock was taken.
SELECT %(key)s, (SELECT count(*) FROM ojs_job WHERE state {before_ack} AND queue = %(key)s),
       (SELECT starts FROM ojs_limited_queue WHERE queue = %(key)s),
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {now}) DIV 1000,
       @@tx_isolation LIKE 'READ-%%',
       (SELECT config FROM ojs_queue WHERE name = %(key)s),
       (SELECT config FROM ojs_queue WHERE name = {default_policy})
