-- Sets the lock timeout back and reads the version of the bound, which no other transaction changes
-- while the queue is locked.
--
-- This is a separate statement, so that its snapshot is taken after lock_queue.sql has waited.
SELECT set_config('lock_timeout', %s, true), (SELECT xmin::text FROM ojs_bound WHERE queue = %s)
