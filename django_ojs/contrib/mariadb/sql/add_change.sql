-- Stores a change of a count, as the triggers do.
INSERT INTO ojs_count_change (queue, state, n, bytes) VALUES (%s, %s, %s, %s)
