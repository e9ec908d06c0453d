-- Locks rows of ojs_lock until the transaction ends, in their order, so that two statements cannot
-- deadlock. {{how}}: with SKIP LOCKED, leave out those that another transaction has locked; with WAIT,
-- for so many seconds. A sort would lock every row: the index has the order.
SELECT slot, @@tx_isolation FROM ojs_lock FORCE INDEX (PRIMARY)
WHERE slot IN ({{slots}}) ORDER BY slot FOR UPDATE {{how}}
