-- Stores available jobs that differ in their ids and arguments only, by the procedure
-- `ojs_push_many`.
--
-- {others} are the arguments that have a default: `%s`, or the default itself.
CALL ojs_push_many(NULL, %s, %s, %s, %s, %s, %s, {others})
