-- The time now, and not that at which the transaction began.
SELECT clock_timestamp()
