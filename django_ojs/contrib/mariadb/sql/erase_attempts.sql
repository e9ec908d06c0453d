-- Deletes the history of the attempts of jobs.
DELETE FROM ojs_attempt WHERE job_id IN %(keys)s
