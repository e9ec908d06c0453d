-- Frees the space of changes that were folded.
--
-- Autovacuum checks once a minute; by then a reader of a count would have to pass tens of thousands
-- of dead rows.
VACUUM (SKIP_LOCKED) ojs_count_change
