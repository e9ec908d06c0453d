-- Gives rows that the caller has read the positions that it has chosen.
UPDATE ({rows}) AS placed STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.id = placed.id
SET {table}.position = placed.position
