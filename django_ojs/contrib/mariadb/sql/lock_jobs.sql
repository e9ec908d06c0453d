-- Locks jobs, in the order of the primary key, and returns their columns that decide what happens to
-- them; without those that another session has locked.
--
-- Each is read by its key: of a table that it takes for small the server would read, and lock, all rows,
-- and a claim would skip a job that was just enqueued. So it is in each statement that locks jobs.
SELECT j.id, j.queue, j.type, j.state, j.run, j.worker_id, j.attempt, j.returned, j.max_attempts,
       j.due_at, j.options, UTC_TIMESTAMP(6)
FROM ({{rows}}) AS wanted STRAIGHT_JOIN ojs_job AS j FORCE INDEX (PRIMARY) ON j.id = wanted.id
FOR UPDATE SKIP LOCKED
