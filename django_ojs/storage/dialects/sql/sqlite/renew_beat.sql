-- BEAT of a registered worker that holds no jobs: stores what changes with each heartbeat. If the
-- row says something else, such as another session, the caller writes the whole row.
UPDATE ojs_worker SET active_jobs = 0, seen_at = {now}, beat_at = {now},
    steady_since = coalesce(CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%f', beat_at,
                                               printf('+%%.3f seconds', 2 * beat_interval_ms / 1000.0)) > {now}
                                  AND steady_since <= {now}
                                 THEN steady_since END, {now})
WHERE id = %(worker_id)s AND owner = '' AND state = 'running' AND wanted_slots IS NULL
  AND beat_interval_ms = %(interval)s AND session_pid IS %(pid)s
RETURNING directive
