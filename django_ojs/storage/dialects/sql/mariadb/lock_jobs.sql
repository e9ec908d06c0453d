-- Locks jobs, in the order of the primary key, and returns their columns that decide what happens to
-- them. The join reads each by its key: a search by a list may read, and wait for, other rows.
SELECT j.id, j.queue, j.type, j.state, j.run, j.worker_id, j.attempt, j.returned, j.max_attempts,
       j.due_at, j.options, UTC_TIMESTAMP(6)
FROM ({rows}) AS wanted STRAIGHT_JOIN ojs_job AS j ON j.id = wanted.id
FOR UPDATE
