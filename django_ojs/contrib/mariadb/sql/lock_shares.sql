-- Locks some more of the rows of ojs_lock that are the shares of a name, until the transaction ends:
-- those that no other transaction has locked. A sort would lock every row: the index has the order.
SELECT slot, @@tx_isolation FROM ojs_lock FORCE INDEX (PRIMARY)
WHERE slot BETWEEN %(first)s AND %(last)s AND slot NOT IN %(held)s
ORDER BY slot LIMIT %(number)s FOR UPDATE SKIP LOCKED
