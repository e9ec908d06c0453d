-- Lets each statement see what was committed before it. It must be the first of a transaction.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED
