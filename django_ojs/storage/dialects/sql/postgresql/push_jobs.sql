-- Stores available jobs that differ in their ids and arguments only, by the procedure
-- `ojs_push_many`.
--
-- {named} are the arguments that are not the default: `, name => %s` each.
CALL ojs_push_many(NULL, %s, %s, %s, %s, %s, %s{named})
