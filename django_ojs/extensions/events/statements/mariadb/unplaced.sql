-- Committed rows without a position, in the order of their ids, each with the number after which
-- the new positions begin: see common/assign_positions.sql. It is a separate statement, because
-- within the UPDATE it would wait for the rows of open transactions.
SELECT id, (SELECT greatest(coalesce(max(position), 0),
                            timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6))) FROM {table})
FROM {table} WHERE position IS NULL ORDER BY id LIMIT %s
