-- The oldest rows of some workflows in the journal of ended jobs, locked; those of transactions that
-- are open are left out, and not waited for.
SELECT id, workflow_id, job_id, state FROM ojs_workflow_ended_job
WHERE workflow_id IN %(workflow_ids)s
ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
