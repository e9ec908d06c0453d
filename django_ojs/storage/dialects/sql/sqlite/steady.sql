-- Whether some worker's heartbeats have been stored until now, for at least {{beat_ms}}, and for two of
-- its intervals or five seconds, whichever is shorter: a live worker tries again sooner.
EXISTS (
    SELECT 1 FROM ojs_worker AS witness
    WHERE strftime('%%Y-%%m-%%d %%H:%%M:%%f', witness.seen_at,
                   printf('+%%.3f seconds', 1.5 * witness.beat_interval_ms / 1000.0)) > {now}
      AND strftime('%%Y-%%m-%%d %%H:%%M:%%f', witness.steady_since,
                   printf('+%%.3f seconds', max({{beat_ms}}, min(2 * witness.beat_interval_ms, 5000)) / 1000.0)) <= {now})
