-- The committed rows without a position, in the order of their ids, and the last position. Apart from
-- the UPDATE: within one, this would wait for the rows of transactions that are open.
SELECT id, (SELECT coalesce(max(position), 0) FROM {table})
FROM {table} WHERE position IS NULL ORDER BY id LIMIT %s
