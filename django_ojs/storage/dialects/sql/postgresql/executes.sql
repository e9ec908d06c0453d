-- Which of these sessions exist, and whether each executes a statement. If its state is hidden, it
-- counts as executing one.
SELECT pid, coalesce(state NOT LIKE 'idle%%', true)
FROM pg_stat_activity
WHERE pid = ANY(%s)
