-- Stores one job that is available at once, by the procedure `ojs_push`: a session keeps its plan.
--
-- {others} are the arguments that have a default: `%s`, or the default itself.
CALL ojs_push(NULL, %s, %s, %s, %s, %s, %s, {others})
