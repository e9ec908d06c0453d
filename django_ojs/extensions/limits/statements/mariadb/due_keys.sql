-- The keys that have to be checked. A caller's transaction with one snapshot gets none, because its
-- statements do not see what was committed before them.
SELECT DISTINCT limit_key, false FROM ojs_limit_check
WHERE due_at <= {now} AND @@tx_isolation LIKE 'READ-%%' LIMIT %(limit)s
