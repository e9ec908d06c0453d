-- Gives committed rows without a position the next positions, in the order of their ids.
--
-- These are above the last position, and above the microseconds since 1970. So positions are not
-- used again in a database that has lost its last rows, as a replica may at a failover: a reader
-- that had seen the lost rows would miss new rows with the same positions.
UPDATE {table} SET position = placed.position
FROM (SELECT id, row_number() OVER (ORDER BY id)
                 + (SELECT {greatest}(COALESCE(max(position), 0), {microseconds}) FROM {table})
                 AS position
      FROM (SELECT id FROM {table} WHERE position IS NULL ORDER BY id LIMIT %s) AS unplaced
     ) AS placed
WHERE {table}.id = placed.id
