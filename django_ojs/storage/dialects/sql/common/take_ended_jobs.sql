-- Takes the oldest rows of a workflow out of the journal of ended jobs.
DELETE FROM ojs_workflow_ended_job WHERE id IN (
    SELECT id FROM ojs_workflow_ended_job WHERE workflow_id = %(workflow_id)s
    ORDER BY id LIMIT %(limit)s)
RETURNING id, job_id, state
