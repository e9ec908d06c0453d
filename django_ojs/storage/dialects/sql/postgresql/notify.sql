-- Notifies the workers that listen; {calls} is one pg_notify() a queue.
--
-- The notification is a transaction of its own and need not be written to the disk: it is a hint,
-- and workers poll as well.
SELECT set_config('synchronous_commit', 'off', true), {calls}
