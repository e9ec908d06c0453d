-- The committed rows without a position, in the order of their ids, and the position below the next
-- one: see `assign_positions` of the other databases. It is a statement of its own, because in the
-- UPDATE it would wait for the rows of open transactions.
SELECT id, (SELECT greatest(coalesce(max(position), 0),
                            timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6))) FROM {table})
FROM {table} WHERE position IS NULL ORDER BY id LIMIT %s
