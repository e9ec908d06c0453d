-- Locks a subject, a word such as "events", until the transaction ends.
--
-- The class 20297 separates these locks from those of other applications in the same database.
SELECT pg_advisory_xact_lock(20297, hashtext(%s))
