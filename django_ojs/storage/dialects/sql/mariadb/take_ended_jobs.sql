-- Takes rows out of the journal of ended jobs, which the caller has locked.
DELETE FROM ojs_workflow_ended_job WHERE id IN %(ids)s
