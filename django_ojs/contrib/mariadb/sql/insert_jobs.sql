-- Stores jobs, each a row of new_job.sql.
INSERT INTO ojs_job (id, type, queue, state, priority, args, meta, options, attempt, max_attempts,
                     returned, run, timeout_ms, visibility_timeout_ms, created_at, enqueued_at,
                     due_at, expires_at, unique_key, marks, parent_id, size_bytes, dead_letter)
VALUES {{rows}}
RETURNING id, state, created_at, enqueued_at, due_at, expires_at, size_bytes
