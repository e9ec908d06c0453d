-- Deletes jobs whose attempts are deleted, which the caller has locked.
DELETE j FROM ojs_job AS j FORCE INDEX (PRIMARY) WHERE j.id IN %(keys)s
