-- Whether a statement sees what was committed before it, in this session's transactions.
SELECT @@tx_isolation LIKE 'READ-%%'
