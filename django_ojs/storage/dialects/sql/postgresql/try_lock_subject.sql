-- Locks a subject, as lock_subject does, unless another transaction holds it. Does not wait.
SELECT pg_try_advisory_xact_lock(20297, hashtext(%s))
