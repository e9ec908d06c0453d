-- Takes the write lock, and waits for it: an UPDATE that changes no row.
--
-- A deferred transaction that reads first and writes later fails at once, without waiting, when
-- another connection has written in between.
UPDATE ojs_job SET run = run WHERE 0
