-- Sets a time limit, such as `lock_timeout`, until the transaction ends.
--
-- This is not a SELECT, because after a SELECT the transaction's isolation level cannot be set.
SET LOCAL {{limit}} = {{milliseconds}}
