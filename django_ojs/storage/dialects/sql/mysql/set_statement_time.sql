-- Sets after how many seconds the server stops a query of the session; 0 is never. No other statement
-- is stopped.
SET SESSION max_execution_time = CAST(CEILING(1000 * %s) AS unsigned)
