-- Takes the oldest rows of some workflows out of the journal of ended jobs.
DELETE FROM ojs_workflow_ended_job WHERE id IN (
    SELECT id FROM ojs_workflow_ended_job WHERE workflow_id = ANY(%(workflow_ids)s::uuid[])
    ORDER BY id LIMIT %(limit)s)
RETURNING id, workflow_id, job_id, state
