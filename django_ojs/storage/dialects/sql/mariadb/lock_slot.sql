-- Locks a row that stands for a subject, and waits for it; and whether a later statement sees what was
-- committed meanwhile.
SELECT slot, @@tx_isolation LIKE 'READ-%%' FROM ojs_lock WHERE slot = %(slot)s FOR UPDATE
