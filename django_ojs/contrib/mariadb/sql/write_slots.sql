-- Changes rows of ojs_lock that this transaction has locked, so that a transaction on another node of
-- a cluster cannot have them too. The same value again would be no change.
UPDATE ojs_lock SET times_locked = times_locked + 1 WHERE slot IN ({{slots}})
