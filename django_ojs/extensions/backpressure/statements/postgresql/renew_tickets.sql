-- Takes one ticket. If it is not valid any more, ojs_admit counts and makes new tickets valid: it does so
-- only if the statement is a transaction of its own, as the last argument says.
SELECT ojs_admit(%s, 1, 0, true)
