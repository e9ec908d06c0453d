-- Keys whose limits are to check. None in a caller's transaction in which a statement does not see
-- what was committed before it.
SELECT DISTINCT limit_key, false FROM ojs_limit_check
WHERE due_at <= {now} AND @@tx_isolation LIKE 'READ-%%' LIMIT %(limit)s
