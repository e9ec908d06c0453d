-- The row of a worker that claims jobs, locked against its removal until the claim is committed.
SELECT 1 FROM ojs_worker FORCE INDEX (PRIMARY) WHERE id = %(worker_id)s LOCK IN SHARE MODE
