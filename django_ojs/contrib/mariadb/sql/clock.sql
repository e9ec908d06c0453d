-- The time now, and not that at which the transaction began.
SELECT UTC_TIMESTAMP(6)
