-- Stores available jobs by a procedure, whose plan a session keeps: one job, one with a unique key, or
-- many that differ in their ids and arguments only.
--
-- {{others}} are the other arguments: `%s`, or the default itself.
CALL {{procedure}}(NULL, %s, %s, %s, %s, %s, %s, {{others}})
