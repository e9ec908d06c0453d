-- Stores one job that is available at once, or many that differ in their ids and arguments only, by the
-- procedure of either: a session keeps its plan.
--
-- {others} are the arguments that have a default: `%s`, or the default itself.
CALL {procedure}(NULL, %s, %s, %s, %s, %s, %s, {others})
