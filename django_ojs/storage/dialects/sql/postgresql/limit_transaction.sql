-- Sets a time limit, such as `lock_timeout`, until the transaction ends.
--
-- This is no SELECT, because after one the isolation level of the transaction could not be set.
SET LOCAL {{limit}} = {{milliseconds}}
