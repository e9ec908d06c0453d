-- Keys, and whether this transaction has the lock of each; the class of the locks is as in candidates.sql.
SELECT key, pg_try_advisory_xact_lock(20305, hashtext(key)) FROM unnest(%(keys)s::text[]) AS wanted (key)
