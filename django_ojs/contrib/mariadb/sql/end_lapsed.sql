-- LAPSE: ends jobs that have spent their attempts. The caller has locked them and stored their runs.
UPDATE ojs_job FORCE INDEX (PRIMARY)
SET state = {after_last_lapse}, finished_at = {now}, dead_letter = %(dead_letter)s,
    discard_reason = 'exhausted', error = %(error)s, lease_until = NULL
WHERE id IN %(keys)s AND state {before_lapse}
