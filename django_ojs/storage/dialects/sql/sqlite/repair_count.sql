-- Corrects the count of one queue and state.
INSERT INTO ojs_count (queue, state, n, bytes) VALUES (%s, %s, %s, %s)
ON CONFLICT (queue, state) DO UPDATE SET n = excluded.n, bytes = excluded.bytes
