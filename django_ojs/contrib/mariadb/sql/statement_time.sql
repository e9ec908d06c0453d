-- After how many seconds the server stops a statement of the session.
SELECT @@max_statement_time
