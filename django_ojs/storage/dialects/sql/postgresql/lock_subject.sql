-- Locks a subject, a word such as "events", until the transaction ends.
--
-- The class 20297 separates these locks from those of other applications in the same database. With
-- {{try_}} it does not wait for another transaction that holds the lock.
SELECT pg_{{try_}}advisory_xact_lock(20297, hashtext(%s))::text
