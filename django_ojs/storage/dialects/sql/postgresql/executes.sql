-- Which of these sessions there are, and whether each executes a statement. One whose state is hidden
-- counts as if it did.
SELECT pid, coalesce(state NOT LIKE 'idle%%', true)
FROM pg_stat_activity
WHERE pid = ANY(%s)
