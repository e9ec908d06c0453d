-- BEAT of a registered worker that holds no jobs: what changes with each heartbeat. If the row differs
-- in something else, such as the session, it changes no row, and the caller writes the whole row.
--
-- MariaDB makes the assignments one after the other: the gap is measured before the time is set.
UPDATE ojs_worker SET active_jobs = 0, seen_at = {now},
    steady_since = coalesce(CASE WHEN beat_at > {now} - INTERVAL 2000 * beat_interval_ms MICROSECOND
                                  AND steady_since <= {now}
                                 THEN steady_since END, {now}),
    beat_at = {now}
WHERE id = %(worker_id)s AND owner = '' AND state = 'running' AND wanted_slots IS NULL
  AND beat_interval_ms = %(interval)s AND session_pid <=> %(pid)s
