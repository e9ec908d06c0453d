-- Waits until this node of a cluster has what was committed on all of them. Not in a transaction, where
-- the server does not wait. An error (1205) after `repl.causal_read_timeout`, which is 30 seconds.
SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1
