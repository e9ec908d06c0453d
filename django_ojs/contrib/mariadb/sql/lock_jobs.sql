-- Locks jobs, in the order of the primary key, and returns the columns that decide what happens to them.
-- Jobs that another session has locked are left out.
--
-- The index is forced, here and in each statement that locks jobs: the server reads, and locks, all rows
-- of a table that it takes for small, and a claim would then skip a job that was just enqueued.
SELECT j.id, j.queue, j.type, j.state, j.run, j.worker_id, j.attempt, j.returned, j.max_attempts,
       j.due_at, j.options, UTC_TIMESTAMP(6)
FROM ({{rows}}) AS wanted STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = wanted.id
FOR UPDATE SKIP LOCKED
