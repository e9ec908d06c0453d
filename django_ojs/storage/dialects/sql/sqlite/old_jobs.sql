-- The oldest finished jobs of a kind that are past their retention time, except those that
-- extensions need.
SELECT id FROM ojs_job
WHERE state = %(state)s AND dead_letter = %(dead_letter)s
  AND finished_at <= {{since}}
  AND {{unneeded}}
ORDER BY finished_at, id LIMIT %(limit)s
