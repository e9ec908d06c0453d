-- Locks the oldest changes of the counts that are committed.
SELECT id, queue, state, n, bytes FROM ojs_count_change
ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
