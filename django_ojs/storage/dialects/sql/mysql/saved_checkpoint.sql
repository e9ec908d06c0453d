-- The checkpoint of a job, as RETURNING would have it on MariaDB.
SELECT run, sequence, created_at FROM ojs_checkpoint WHERE job_id = %(job_id)s
