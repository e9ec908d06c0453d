-- Lets each statement see what was committed before it. This must be the transaction's first statement.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED
