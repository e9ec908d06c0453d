-- The oldest finished jobs of a kind that are past their retention time.
SELECT id FROM ojs_job
WHERE state = %(state)s AND dead_letter = %(dead_letter)s
  AND finished_at <= strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', %(age)s)
ORDER BY finished_at, id LIMIT %(limit)s
