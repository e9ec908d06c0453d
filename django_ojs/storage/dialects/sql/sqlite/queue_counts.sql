-- Counts the jobs of a queue and their bytes, by state; the states are a JSON array.
SELECT state, n, bytes FROM ojs_count
WHERE queue = %(queue)s AND state IN (SELECT value FROM json_each(%(states)s))
