-- Sets a time limit, such as that of the wait for each lock, until the transaction ends.
--
-- Not by a SELECT, after which the isolation level of the transaction could not be set any more.
SET LOCAL {{limit}} = {{milliseconds}}
