-- Where the row of a job is.
SELECT ctid::text FROM ojs_job WHERE id = %s
