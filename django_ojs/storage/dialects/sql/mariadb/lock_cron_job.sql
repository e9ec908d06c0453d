-- Locks a cron job whose `due_at` is the given one, unless another transaction has locked it.
SELECT name FROM ojs_cron_job WHERE name = %(name)s AND due_at = %(due_at)s FOR UPDATE SKIP LOCKED
