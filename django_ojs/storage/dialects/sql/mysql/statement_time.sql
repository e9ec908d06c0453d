-- After how many seconds the server stops a query of the session.
SELECT @@max_execution_time / 1000
