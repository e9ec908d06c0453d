-- The sessions that keep rows of active jobs locked, with the number of jobs, one of them, and since when
-- the transaction is open.
--
-- A row has the number of the transaction that has locked it last, and each transaction has a lock
-- on its own number. Rows that several transactions have locked have the number of a MultiXact, and
-- are left out.
SELECT l.pid, a.application_name, a.xact_start, count(*), (min(j.id::text))::uuid
FROM pg_locks AS l
     JOIN ojs_job AS j ON j.xmax = l.transactionid
     LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.granted AND l.pid <> pg_backend_pid()
  AND j.state {before_ack}
  AND (%(keys)s::uuid[] IS NULL OR j.id = ANY(%(keys)s::uuid[]))
GROUP BY l.pid, a.application_name, a.xact_start
ORDER BY count(*) DESC, l.pid
