-- The isolation level of single statements.
SHOW default_transaction_isolation
