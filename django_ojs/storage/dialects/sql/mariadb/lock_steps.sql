-- Locks those of these steps of workflows that are enqueued.
SELECT s.id
FROM ({rows}) AS wanted STRAIGHT_JOIN ojs_workflow_step AS s FORCE INDEX (PRIMARY) ON s.id = wanted.id
WHERE s.state = 'enqueued' FOR UPDATE
