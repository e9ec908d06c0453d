-- Which of these sessions exist, and whether each executes a statement.
SELECT id, command <> 'Sleep'
FROM information_schema.processlist
WHERE json_contains(%(numbers)s, CAST(id AS char))
