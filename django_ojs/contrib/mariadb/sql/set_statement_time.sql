-- Sets after how many seconds the server stops a statement of the session; 0 is never.
SET SESSION max_statement_time = %s
