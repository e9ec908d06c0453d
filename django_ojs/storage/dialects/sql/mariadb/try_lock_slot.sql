-- Locks a row that stands for a subject, unless another transaction has locked it.
SELECT slot, @@tx_isolation LIKE 'READ-%%' FROM ojs_lock WHERE slot = %(slot)s FOR UPDATE SKIP LOCKED
