-- The jobs that were just inserted, as RETURNING would have them on MariaDB.
SELECT id, state, created_at, enqueued_at, due_at, expires_at, size_bytes
FROM ojs_job FORCE INDEX (PRIMARY) WHERE id IN %(keys)s
