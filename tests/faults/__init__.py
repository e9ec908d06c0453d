"""What is promised when things break, tried with real processes and real kills.

1. A job is stored if and only if the caller's transaction commits:
   `test_commit_in_flight`, `test_transactions`.
2. An acknowledged job is never lost, and ends in exactly one final state:
   `test_kill_storm`, `test_server_restart`, `test_lost_connections`, `test_failover`,
   `test_connection_limit`, `test_stalled_network`.
3. It runs more than once only after a crash, a lost response or an expired lease, and the later run
   has the higher attempt: `test_kill_storm`, `test_kill_points`.
4. A worker that lost its claim cannot change the job: `test_frozen_worker`.
5. No input produces a 500: is tried where the HTTP API is.
6. Without NOTIFY, without session state, behind PgBouncer, everything works, at most one poll
   later: `test_without_notify`, `test_pgbouncer`.

Every run of a handler is written to a ledger, on a connection of its own that commits at once, so
that it outlives the kill. The checker compares the ledger with what was enqueued.
"""
