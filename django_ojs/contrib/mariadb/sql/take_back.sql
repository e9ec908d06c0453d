-- LAPSE: takes jobs back from their workers. The jobs have attempts left, and the caller has locked them
-- and stored their runs.
UPDATE ojs_job FORCE INDEX (PRIMARY)
SET state = {after_lapse}, enqueued_at = {now}, started_at = NULL, worker_id = NULL,
    finished_at = NULL, dead_letter = FALSE,
    returned = CASE WHEN %(spends)s THEN returned ELSE returned + 1 END,
    lost_with_others = CASE WHEN %(spends)s THEN lost_with_others ELSE lost_with_others + 1 END,
    error = %(error)s, lease_until = NULL
WHERE id IN %(keys)s AND state {before_lapse}
