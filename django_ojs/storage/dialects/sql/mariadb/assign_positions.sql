-- Gives committed rows without a position the next ones, in the order of their ids.
UPDATE (
    SELECT id, row_number() OVER (ORDER BY id)
               + (SELECT COALESCE(max(position), 0) FROM {table}) AS position
    FROM (SELECT id FROM {table} WHERE position IS NULL ORDER BY id LIMIT %s) AS unplaced
) AS placed JOIN {table} ON {table}.id = placed.id
SET {table}.position = placed.position
