-- Locks rows of ojs_lock until the transaction ends, in their order, so that two statements cannot
-- deadlock. {{how}}: SKIP LOCKED leaves out rows that another transaction has locked; WAIT limits the
-- wait for them to some seconds. The index has the order, because a sort would lock every row.
SELECT slot, @@tx_isolation FROM ojs_lock FORCE INDEX (PRIMARY)
WHERE slot IN ({{slots}}) ORDER BY slot FOR UPDATE {{how}}
