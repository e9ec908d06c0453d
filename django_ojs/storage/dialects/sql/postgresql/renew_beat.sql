-- BEAT of a registered worker that holds no jobs: what changes with each heartbeat. None where the row
-- says something else, such as another session: then the whole row is written.
UPDATE ojs_worker SET active_jobs = 0, seen_at = statement_timestamp(), beat_at = statement_timestamp(),
    steady_since = coalesce(CASE WHEN beat_at > statement_timestamp() - 2 * beat_interval_ms * interval '1 millisecond'
                                 THEN steady_since END, statement_timestamp())
WHERE id = %(worker_id)s AND owner = '' AND state = 'running' AND wanted_slots IS NULL
  AND beat_interval_ms = %(interval)s AND session_pid IS NOT DISTINCT FROM %(pid)s
RETURNING directive
