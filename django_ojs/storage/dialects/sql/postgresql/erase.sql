-- Deletes jobs, which the caller has locked, and the history of their attempts.
WITH attempts AS (DELETE FROM ojs_attempt WHERE job_id = ANY(%(keys)s::uuid[]))
DELETE FROM ojs_job WHERE id = ANY(%(keys)s::uuid[])
