-- Deletes jobs that the caller has locked, and whose attempts it has deleted.
DELETE j FROM ojs_job AS j FORCE INDEX (PRIMARY) WHERE j.id IN %(keys)s
