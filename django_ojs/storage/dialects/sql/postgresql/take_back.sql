-- LAPSE: takes active jobs back from their workers. Jobs that have spent their attempts end.
--
-- The caller has locked them, and stored how their runs ended.
UPDATE ojs_job
SET state = CASE WHEN {spent} THEN {after_last_lapse} ELSE {after_lapse} END,
    enqueued_at = CASE WHEN {spent} THEN enqueued_at ELSE statement_timestamp() END,
    started_at = CASE WHEN {spent} THEN started_at END,
    worker_id = CASE WHEN {spent} THEN worker_id END,
    finished_at = CASE WHEN {spent} THEN statement_timestamp() END,
    dead_letter = {spent} AND {dead_letter},
    discard_reason = CASE WHEN {spent} THEN 'exhausted' ELSE discard_reason END,
    returned = CASE WHEN %(spends)s THEN returned ELSE returned + 1 END,
    lost_with_others = CASE WHEN %(spends)s THEN lost_with_others ELSE lost_with_others + 1 END,
    error = %(error)s::jsonb, lease_until = NULL
WHERE id = ANY(%(keys)s::uuid[]) AND state {before_lapse}
RETURNING id, queue, type, state
