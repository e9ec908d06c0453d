-- Counts jobs by state, as the triggers keep them; the queues are a JSON array.
SELECT state, sum(n) FROM ojs_count
WHERE %(queues)s IS NULL OR queue IN (SELECT value FROM json_each(%(queues)s))
GROUP BY state
