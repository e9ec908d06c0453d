-- One row without a position, if there is any.
--
-- This is not an EXISTS, because ORDER BY makes the planner take the index, which is usually empty.
SELECT id FROM {table} WHERE position IS NULL ORDER BY id LIMIT 1
