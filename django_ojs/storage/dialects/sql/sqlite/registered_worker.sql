-- The row of a worker that claims jobs. The removal of the row waits for the one write lock.
SELECT 1 FROM ojs_worker WHERE id = %(worker_id)s
