-- Notifies those that listen to a channel; {{calls}} is one pg_notify() a payload.
--
-- The notification is a transaction of its own and need not be written to the disk: it is a hint,
-- and listeners poll as well.
SELECT set_config('synchronous_commit', 'off', true), {{calls}}
