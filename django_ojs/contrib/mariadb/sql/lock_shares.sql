-- Locks more shares of a name, which are rows of ojs_lock, until the transaction ends. Rows that another
-- transaction has locked are left out. The index has the order, because a sort would lock every row.
SELECT slot, @@tx_isolation FROM ojs_lock FORCE INDEX (PRIMARY)
WHERE slot BETWEEN %(first)s AND %(last)s AND slot NOT IN %(held)s
ORDER BY slot LIMIT %(number)s FOR UPDATE SKIP LOCKED
