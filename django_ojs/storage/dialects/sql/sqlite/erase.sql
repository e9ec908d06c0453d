-- Deletes jobs, after their attempts.
DELETE FROM ojs_job WHERE id IN (SELECT value FROM json_each(%(keys)s))
