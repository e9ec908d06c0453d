-- As lock_slot.sql, for so many seconds.
SELECT slot, @@tx_isolation LIKE 'READ-%%' FROM ojs_lock WHERE slot = %(slot)s FOR UPDATE WAIT {{seconds}}
