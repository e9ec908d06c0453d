-- Deletes jobs whose attempts are deleted, which the caller has locked.
DELETE FROM ojs_job WHERE id IN %(keys)s
