-- BEAT of a registered worker that holds no jobs: stores what changes with each heartbeat. If the
-- row says something else, such as another session, the caller writes the whole row.
UPDATE ojs_worker SET active_jobs = 0, seen_at = statement_timestamp(), beat_at = statement_timestamp(),
    steady_since = coalesce(CASE WHEN beat_at > statement_timestamp() - 2 * beat_interval_ms * interval '1 millisecond'
                                  AND steady_since <= statement_timestamp()
                                 THEN steady_since END, statement_timestamp())
WHERE id = %(worker_id)s AND owner = '' AND state = 'running' AND wanted_slots IS NULL
  AND beat_interval_ms = %(interval)s AND session_pid IS NOT DISTINCT FROM %(pid)s
RETURNING directive
