-- Waits until this node of a cluster has applied what was committed on all nodes. In a transaction the
-- server does not wait. It ends with error 1205 after `repl.causal_read_timeout`, which is 30 seconds.
SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1
