-- Each statement sees what was committed before it. Only possible as the first of a transaction.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED
