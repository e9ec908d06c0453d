-- Deletes the history of the attempts of jobs.
DELETE FROM ojs_attempt WHERE job_id IN (SELECT value FROM json_each(%(keys)s))
