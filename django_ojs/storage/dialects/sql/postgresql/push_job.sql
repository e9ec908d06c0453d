-- Stores one job that is available at once, by the procedure `ojs_push`: a session keeps its plan.
--
-- {named} are the arguments that are not the default: `, name => %s` each.
CALL ojs_push(NULL, %s, %s, %s, %s, %s, %s{named})
