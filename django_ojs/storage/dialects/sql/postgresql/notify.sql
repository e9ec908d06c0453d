-- Notifies the listeners of a channel; {{calls}} is one pg_notify() for each payload.
--
-- The notification is a transaction of its own and need not be written to the disk: it is a hint,
-- and listeners poll as well.
SELECT set_config('synchronous_commit', 'off', true), {{calls}}
