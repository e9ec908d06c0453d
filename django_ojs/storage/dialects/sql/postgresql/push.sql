-- Stores one job that is available at once, one with a unique key, or many jobs that differ in their ids
-- and arguments only, by a procedure of each: a session keeps its plan.
--
-- {others} are the arguments that have a default: `%s`, or the default itself.
CALL {procedure}(NULL, %s, %s, %s, %s, %s, %s, {others})
