-- Whether a queue has room for jobs, without its lock (see ojs_admit). If no valid ticket is left, it counts,
-- and makes new tickets valid if the statement is a transaction of its own, as the last argument says.
SELECT ojs_admit(%(queue)s, %(jobs)s, %(size)s, %(alone)s)
