-- One row without a position, if there is any.
--
-- Not EXISTS: with the order the planner takes the index, which is usually empty.
SELECT id FROM {table} WHERE position IS NULL ORDER BY id LIMIT 1
