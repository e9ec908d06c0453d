-- Adds to the count of a queue and state.
INSERT INTO ojs_count (queue, state, n, bytes) VALUES (%s, %s, %s, %s)
ON DUPLICATE KEY UPDATE n = n + VALUES(n), bytes = bytes + VALUES(bytes)
